"""One recording of what a GPU does, beside what the course computes without one: ``make gpu``.

``command`` reads the command line, ``conductor`` goes through the steps and keeps every part of them the
moment it is known, ``child`` is the process that a step runs in, ``recording`` is the file, ``page`` the page
made of it, ``steps`` what is measured. The processes above the steps import no PyTorch.
"""

"""One recording of what a GPU does, beside what the course computes without one: ``make gpu``.

``command`` reads the command line, ``conductor`` goes through the steps and keeps every part of them the
moment it is known, ``process`` holds the process that a step runs in, and ``child`` is what that one does.
``recording`` is the file, ``page`` the page made of it, ``setup`` what a recording belongs to, ``steps`` what
is measured. The process that conducts imports no PyTorch, and holds no GPU.
"""

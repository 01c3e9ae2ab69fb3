"""What the course does on a GPU, recorded: ``make gpu``.

``__main__`` reads the command line and goes through what is outstanding, ``parts`` says which parts there are
and runs one in a process of its own, ``recording`` is the file, ``page`` the page made of it.
"""

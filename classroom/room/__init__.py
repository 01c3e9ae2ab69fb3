"""The live room of a class: a JupyterHub service that shows who solved what, and how people vote.

``config.add_to(c, teachers)`` puts it into a hub's configuration; the hub runs ``python -m classroom.room``.
"""

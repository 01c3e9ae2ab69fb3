"""The lessons as files: the originals that the course comes with, and the learner's own copy of them.

No learner edits the originals: in a checkout the next ``git pull`` would fail, and an installed package is
not theirs to write in.
"""

from amp_lessons.course.lessons.own_copy import Brought, Reset, bring, folder_for, is_copy, obstacle, reset
from amp_lessons.course.lessons.shipped import originals

__all__ = ["Brought", "Reset", "bring", "folder_for", "is_copy", "obstacle", "originals", "reset"]

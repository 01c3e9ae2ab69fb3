"""The mended loop trains as the exercise of lesson 04 asks for, and is asked the same."""

from amp_lessons.course.exercises.train_with_amp.check import judge

__all__ = ["judge"]

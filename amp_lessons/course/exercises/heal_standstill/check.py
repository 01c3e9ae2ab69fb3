"""The mended loop clips as the exercise of lesson 04 asks for, and is asked the same."""

from amp_lessons.course.exercises.clip_gradients.check import judge

__all__ = ["judge"]

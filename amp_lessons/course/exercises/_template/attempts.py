"""Attempts at this exercise: wrong ones with the finding each deserves, unusual right ones."""

from __future__ import annotations

import torch

from amp_lessons.course.exercises.attempt_table import Table

TABLE = Table("exercise_id")
wrong = (
    TABLE.mutant
)  # name, code of the first finding, a word of its message, pieces of the solution replaced
right = TABLE.variant

wrong("squared", "not_twice", "not twice", ("x * 2", "x**2"))
wrong("half", "not_twice", "not twice", ("x * 2", "x / 2"))
wrong("in_place", "inputs_changed", "in place", ("return x * 2", "x *= 2\n    return x"))
wrong("as_a_list", "wrong_return_type", "list", ("x * 2", "(x * 2).tolist()"))
wrong("nothing_returned", "wrong_return_type", "None", ("return x * 2", "x * 2"))
wrong("always_float32", "wrong_return_type", "float16", ("x * 2", "x.float() * 2"))
wrong("raises", "raised", "ZeroDivisionError", ("x * 2", "x * (2 // 0)"))

right("the_solution")
right("added", ("x * 2", "x + x"))


@TABLE.correct()
def by_numpy(x):
    return torch.as_tensor(x.numpy() * 2)

"""The mistakes, one module a subject: words, cost, cure and lesson of each, and the rule by which it is seen.

Codes are a promise: scripts that read reports rely on them, so a code keeps its meaning and is not renamed.
The same code may stand beside a requirement that holds and beside one that does not. To add a mistake: its
words and its rule in the module of its subject, and its script in ``tests/audit/field/wrong.py``.
"""

# In this order the site lists them, and a report those of one event that weigh the same.
# isort: off
from amp_lessons.audit.rules import dtypes, numbers, ranks, scaler, beside, loss, steps, refusals
from amp_lessons.audit.rules.rows import ROWS, Row

__all__ = ["ROWS", "Row", "beside", "dtypes", "loss", "numbers", "ranks", "refusals", "scaler", "steps"]

"""The one catalogue of mistakes: every code that a finding can carry, and all that is known of it.

Codes are a promise: scripts that read reports rely on them, so a code keeps its meaning and is not renamed.
The same code may stand beside a requirement that holds and beside one that does not.
"""

from amp_lessons.audit.catalogue import checks, exercises, precision, ranks, scaler, steps
from amp_lessons.audit.catalogue.rows import ROWS, Row

__all__ = ["ROWS", "Row", "checks", "exercises", "precision", "ranks", "scaler", "steps"]

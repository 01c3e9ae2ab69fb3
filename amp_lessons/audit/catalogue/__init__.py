"""The one catalogue of mistakes: what an audit says, and what checks of training loops say in the same words.

What a single exercise asks for it words itself; its report explains it.
Codes are a promise: scripts that read reports rely on them, so a code keeps its meaning and is not renamed.
The same code may stand beside a requirement that holds and beside one that does not.
"""

from amp_lessons.audit.catalogue import precision, ranks, scaler, steps
from amp_lessons.audit.catalogue.rows import ROWS, Row

__all__ = ["ROWS", "Row", "precision", "ranks", "scaler", "steps"]

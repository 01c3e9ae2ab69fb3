"""Take part in the live room of a class, if the teacher has one: ``classroom.join()``, ``classroom.leave()``.

Nothing is sent before ``join``. After it, each answer to a prediction and each exercise solved in this
notebook is sent to the class's own server, in the background; ``classroom/room`` in the repository serves it.
"""

from __future__ import annotations

from amp_lessons.classroom.membership import Standing, join, leave, predicted, solved

__all__ = ["Standing", "join", "leave", "predicted", "solved"]

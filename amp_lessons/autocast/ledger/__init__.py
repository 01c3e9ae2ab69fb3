"""The ledger: one row per operation that a model really ran."""

from amp_lessons.autocast.ledger.recorder import RecordingError
from amp_lessons.autocast.ledger.recording import record
from amp_lessons.autocast.ledger.rows import Cast, Ledger, Row, Summary

__all__ = ["Cast", "Ledger", "RecordingError", "Row", "Summary", "record"]

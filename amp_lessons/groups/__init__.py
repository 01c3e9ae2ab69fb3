"""Work for groups: each group, or learner, gets its own variant of a patient, of drills, of an estimate."""

from amp_lessons.groups.handing import Handed, hand_out
from amp_lessons.groups.work import WITHOUT_VARIANTS, Variant, Work, all_work, work

__all__ = ["WITHOUT_VARIANTS", "Handed", "Variant", "Work", "all_work", "hand_out", "work"]

"""Checkpoints of mixed precision training, old and new: what kind one is, and its weights in fp32.

``torch.amp`` and Apex at O1 keep the masters in the model; Apex's ``FP16_Optimizer`` wrote them beside the
optimizer's state; at O2 ``apex.amp`` kept them in the optimizer and wrote them nowhere, and ``model.half()``
before saving loses them too.
"""

from amp_lessons.checkpoints.files import load_checkpoint
from amp_lessons.checkpoints.kinds import Checkpoint, Kind, read_checkpoint

__all__ = ["Checkpoint", "Kind", "load_checkpoint", "read_checkpoint"]

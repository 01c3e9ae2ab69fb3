"""Every message, by where one meets it. The first that matches is the answer; no two match the same text."""

from __future__ import annotations

from amp_lessons.audit.explaining.message import Message
from amp_lessons.audit.explaining.messages.autocast import AUTOCAST
from amp_lessons.audit.explaining.messages.compiling import COMPILING
from amp_lessons.audit.explaining.messages.dtypes import DTYPES
from amp_lessons.audit.explaining.messages.float8 import FLOAT8
from amp_lessons.audit.explaining.messages.gradients import GRADIENTS
from amp_lessons.audit.explaining.messages.kernels import KERNELS
from amp_lessons.audit.explaining.messages.memory import MEMORY
from amp_lessons.audit.explaining.messages.optimizers import OPTIMIZERS
from amp_lessons.audit.explaining.messages.ranges import RANGES
from amp_lessons.audit.explaining.messages.scaler import SCALER
from amp_lessons.audit.explaining.messages.scaler_calls import SCALER_CALLS
from amp_lessons.audit.explaining.messages.sharding import SHARDING
from amp_lessons.audit.explaining.messages.tf32 import TF32

MESSAGES: tuple[Message, ...] = (
    *SCALER_CALLS,
    *SCALER,
    *AUTOCAST,
    *OPTIMIZERS,
    *DTYPES,
    *KERNELS,
    *RANGES,
    *GRADIENTS,
    *FLOAT8,
    *TF32,
    *MEMORY,
    *SHARDING,
    *COMPILING,
)

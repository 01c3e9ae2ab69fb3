"""Every message, by where one meets it. The first that matches is the answer; no two match the same text."""

from __future__ import annotations

from amp_lessons.audit.explaining.message import Message
from amp_lessons.audit.explaining.messages.autocast import AUTOCAST, COMPILING
from amp_lessons.audit.explaining.messages.dtypes import DTYPES, RANGES
from amp_lessons.audit.explaining.messages.kernels import FLOAT8, KERNELS, TF32
from amp_lessons.audit.explaining.messages.scaler import SCALER, SCALER_CALLS
from amp_lessons.audit.explaining.messages.training import GRADIENTS, MEMORY, OPTIMIZERS, SHARDING

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

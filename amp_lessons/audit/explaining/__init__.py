"""What PyTorch's errors and warnings mean to somebody who trains in mixed precision.

``messages`` holds them as data, ``lookup`` finds the one that an exception says.
"""

from amp_lessons.audit.explaining.lookup import Explanation, explain
from amp_lessons.audit.explaining.message import Message
from amp_lessons.audit.explaining.messages import MESSAGES

__all__ = ["MESSAGES", "Explanation", "Message", "explain"]

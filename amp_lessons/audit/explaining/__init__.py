"""What PyTorch's errors and warnings mean to somebody who trains in mixed precision.

``about_…`` hold them as data, ``lookup`` finds the one that an exception says.
"""

from amp_lessons.audit.explaining.lookup import MESSAGES, Explanation, explain
from amp_lessons.audit.explaining.message import Message

__all__ = ["MESSAGES", "Explanation", "Message", "explain"]

"""What PyTorch's errors and warnings mean to somebody who trains in mixed precision.

``messages/*.yaml`` hold them as data, ``lookup`` finds the one that an exception says.
"""

from amp_lessons.audit.explaining.lookup import Explanation, explain
from amp_lessons.audit.explaining.message import Message, all_messages

__all__ = ["Explanation", "Message", "all_messages", "explain"]

"""What other people's scripts and lessons import from ``amp_lessons.audit``, wherever it lies."""

from .explaining import Explanation as Explanation
from .explaining import explain as explain

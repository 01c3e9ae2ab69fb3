"""What notebooks and scripts import from ``amp_lessons.parallel``."""

from .endings import RankError as RankError
from .endings import RankTimeoutError as RankTimeoutError
from .launcher import stop as stop
from .running import Results as Results
from .running import run as run

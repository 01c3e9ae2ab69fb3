"""What notebooks and scripts import from ``amp_lessons.parallel``."""

from .averaging import AVERAGINGS as AVERAGINGS
from .averaging import Averaging as Averaging
from .averaging import Factors as Factors
from .endings import RankError as RankError
from .endings import RankTimeoutError as RankTimeoutError
from .launcher import stop as stop
from .reductions import ALGORITHMS as ALGORITHMS
from .reductions import Hop as Hop
from .reductions import Reduction as Reduction
from .reductions import reduce as reduce
from .reductions import reduction as reduction
from .running import Results as Results
from .running import run as run
from .traffic import STRATEGIES as STRATEGIES
from .traffic import Communication as Communication
from .traffic import Traffic as Traffic
from .traffic import communication as communication
from .volumes import sent_bytes as sent_bytes

"""What notebooks and other people's scripts import from ``amp_lessons.audit``, wherever it lies."""

from .comparing.changes import Nudge as Nudge
from .comparing.comparison import Comparison as Comparison
from .comparing.comparison import compare as compare
from .comparing.recorder import Run as Run
from .comparing.recorder import recording as recording
from .comparing.recording import Recording as Recording
from .explaining import Explanation as Explanation
from .explaining import explain as explain
from .findings import Finding as Finding
from .findings import Place as Place
from .findings import Sighting as Sighting
from .monitoring import Monitor as Monitor
from .monitoring import PrecisionWarning as PrecisionWarning
from .monitoring import monitor as monitor
from .report.report import Report as Report
from .report.together import of_ranks as of_ranks
from .stopping import stop_at_nan as stop_at_nan
from .watch import Seen as Seen
from .watch import watch as watch

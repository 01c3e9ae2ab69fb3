"""Where what ``amp_lessons.scaling`` offers lies; Python reads it to load a name when it is first used."""

from .backward import backward_at as backward_at
from .backward import backward_by_layer as backward_by_layer
from .backward import gradients as gradients
from .checks import parse_scale as parse_scale
from .counts import census as census
from .cycle import PHASES as PHASES
from .cycle import AmpCycle as AmpCycle
from .cycle import PhaseSnapshot as PhaseSnapshot
from .cycle import make_scaler as make_scaler
from .fates import FATES as FATES
from .fates import Census as Census
from .probe import LossScaleProbe as LossScaleProbe
from .timeline import ScalerStep as ScalerStep
from .timeline import ScalerTimeline as ScalerTimeline

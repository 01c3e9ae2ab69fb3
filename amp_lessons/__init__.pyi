"""What lessons and other people's scripts import from ``amp_lessons``, wherever it lies."""

from . import audit as audit
from . import autocast as autocast
from . import bench as bench
from . import clinic as clinic
from . import devices as devices
from . import exercises as exercises
from . import formats as formats
from . import fp8 as fp8
from . import measure as measure
from . import parallel as parallel
from . import quizzes as quizzes
from . import scaling as scaling
from . import training as training
from . import views as views
from .keeping import progress as progress
from .material import charlm as charlm
from .material import data as data
from .material import docstrings as docstrings
from .material import encoder as encoder
from .material import generation as generation
from .material import mnist as mnist
from .material import models as models
from .material import pretrained as pretrained
from .material import race as race
from .material import residual as residual

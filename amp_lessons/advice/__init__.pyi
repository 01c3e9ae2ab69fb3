"""What notebooks and other people's scripts import from ``amp_lessons.advice``, wherever it lies."""

from .advice import Advice as Advice
from .advice import Claim as Claim
from .advise import advise as advise
from .subject import CannotAdviseError as CannotAdviseError

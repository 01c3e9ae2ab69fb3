"""What notebooks and scripts import from ``amp_lessons.interview``."""

from .bank import QUESTIONS as QUESTIONS
from .bank import TOPICS as TOPICS
from .bank import follow_ups as follow_ups
from .bank import prove as prove
from .bank import question as question
from .deck import Card as Card
from .deck import Deck as Deck
from .designs import DESIGNS as DESIGNS
from .drilling import Drill as Drill
from .drilling import drill as drill
from .drilling import drills as drills
from .estimates import Estimate as Estimate
from .estimates import estimate as estimate
from .exporting import as_csv as as_csv
from .exporting import write_anki as write_anki
from .mock import DesignRound as DesignRound
from .mock import Mock as Mock
from .planning import Asked as Asked
from .proving import Proof as Proof
from .questions import LEVELS as LEVELS
from .questions import FollowUp as FollowUp
from .questions import Question as Question
from .reporting import MockReport as MockReport
from .reporting import Turn as Turn
from .whiteboard import Sheet as Sheet
from .whiteboard import sheet as sheet

"""Where each view lies: one line for each name that ``amp_lessons.views`` offers.

Python reads it to find a view when it is first used, editors and type checkers to know what it is.
"""

from .pages.interview import report_page as report_page
from .pages.reports import advice_page as advice_page
from .pages.reports import audit_page as audit_page
from .pages.sheet import sheet_page as sheet_page
from .pages.sheet import sheet_pdf as sheet_pdf
from .widgets.accumulator import AccumulatorView as AccumulatorView
from .widgets.atlas import AtlasView as AtlasView
from .widgets.audit import AuditFindings as AuditFindings
from .widgets.audit import AuditView as AuditView
from .widgets.bits import BitView as BitView
from .widgets.blocks import OutlierView as OutlierView
from .widgets.calculator import CalculatorView as CalculatorView
from .widgets.checked import check as check
from .widgets.coding import CodingRound as CodingRound
from .widgets.cycle import CycleView as CycleView
from .widgets.decoding import DecodingView as DecodingView
from .widgets.design import DesignRound as DesignRound
from .widgets.drill import DrillView as DrillView
from .widgets.errors import UpdateView as UpdateView
from .widgets.errors import product_errors as product_errors
from .widgets.exercise import ExerciseCard as ExerciseCard
from .widgets.few_bits import FewBitsView as FewBitsView
from .widgets.flash_cards import FlashCards as FlashCards
from .widgets.ledger import LedgerView as LedgerView
from .widgets.lesson_end import LessonEnd as LessonEnd
from .widgets.loss_curves import CurveQuiz as CurveQuiz
from .widgets.loss_curves import loss_curves as loss_curves
from .widgets.loss_scale import CensusView as CensusView
from .widgets.loss_scale import LossScaleView as LossScaleView
from .widgets.map import Map as Map
from .widgets.memory import MemoryView as MemoryView
from .widgets.memory import activation_stack as activation_stack
from .widgets.memory import step_memory as step_memory
from .widgets.mock import MockInterview as MockInterview
from .widgets.parts import PartsView as PartsView
from .widgets.parts import changes_by_name as changes_by_name
from .widgets.patient import Patient as Patient
from .widgets.play import Play as Play
from .widgets.quiz import Quiz as Quiz
from .widgets.race import RaceView as RaceView
from .widgets.reduction import ReductionView as ReductionView
from .widgets.roofline import RooflineView as RooflineView
from .widgets.roofline import roofline_of as roofline_of
from .widgets.ruler import RulerView as RulerView
from .widgets.scale import ScaleView as ScaleView
from .widgets.scaler import ScalerView as ScalerView
from .widgets.stills import Still as Still
from .widgets.stills import curves as curves
from .widgets.stills import image_rows as image_rows
from .widgets.symptoms import SymptomTree as SymptomTree
from .widgets.tables import Table as Table
from .widgets.tables import format_table as format_table
from .widgets.tables import source_table as source_table

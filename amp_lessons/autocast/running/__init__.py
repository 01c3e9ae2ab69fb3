"""Run a model once, watched, and leave no trace; on real or on fake tensors."""

from amp_lessons.autocast.running.fake_models import BroughtAlong as BroughtAlong
from amp_lessons.autocast.running.fake_models import RealResults as RealResults
from amp_lessons.autocast.running.fake_models import as_in_inference_mode as as_in_inference_mode
from amp_lessons.autocast.running.fake_models import fake_copy as fake_copy
from amp_lessons.autocast.running.fake_models import fake_mode_of as fake_mode_of
from amp_lessons.autocast.running.fake_models import fake_tensors as fake_tensors
from amp_lessons.autocast.running.fake_models import for_autograd as for_autograd
from amp_lessons.autocast.running.fake_models import gradients_on as gradients_on
from amp_lessons.autocast.running.fake_models import on_fake_cpu as on_fake_cpu
from amp_lessons.autocast.running.fake_models import require_module as require_module
from amp_lessons.autocast.running.fake_models import require_normal_parameters as require_normal_parameters
from amp_lessons.autocast.running.fake_models import twins as twins
from amp_lessons.autocast.running.prepared_run import AlikeDropout as AlikeDropout
from amp_lessons.autocast.running.prepared_run import ModulePaths as ModulePaths
from amp_lessons.autocast.running.prepared_run import PreparedRun as PreparedRun
from amp_lessons.autocast.running.prepared_run import loss_tensors as loss_tensors
from amp_lessons.autocast.running.prepared_run import losses_of as losses_of
from amp_lessons.autocast.running.prepared_run import prepare as prepare
from amp_lessons.autocast.running.prepared_run import values_kept as values_kept
from amp_lessons.autocast.running.watch import OperationCall as OperationCall
from amp_lessons.autocast.running.watch import counting_saved as counting_saved
from amp_lessons.autocast.running.watch import watching as watching

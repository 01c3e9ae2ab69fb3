"""Which dtype autocast picks for an operation on a device: two witnesses, the kernels and the header."""

from amp_lessons.autocast.cast_policy.dispatcher import UnreadablePyTorchError as UnreadablePyTorchError
from amp_lessons.autocast.cast_policy.dispatcher import autocast_key as autocast_key
from amp_lessons.autocast.cast_policy.dispatcher import is_composite as is_composite
from amp_lessons.autocast.cast_policy.dispatcher import map_tensors as map_tensors
from amp_lessons.autocast.cast_policy.dispatcher import overload as overload
from amp_lessons.autocast.cast_policy.dispatcher import tensors_in as tensors_in
from amp_lessons.autocast.cast_policy.dispatcher import without_overload as without_overload
from amp_lessons.autocast.cast_policy.explanations import RULES as RULES
from amp_lessons.autocast.cast_policy.explanations import UNLISTED as UNLISTED
from amp_lessons.autocast.cast_policy.explanations import Operation as Operation
from amp_lessons.autocast.cast_policy.explanations import explain as explain
from amp_lessons.autocast.cast_policy.explanations import operations as operations
from amp_lessons.autocast.cast_policy.policies import CUDNN_RNN as CUDNN_RNN
from amp_lessons.autocast.cast_policy.policies import RECURRENT as RECURRENT
from amp_lessons.autocast.cast_policy.policies import Entry as Entry
from amp_lessons.autocast.cast_policy.policies import Policy as Policy
from amp_lessons.autocast.cast_policy.policies import atlas as atlas
from amp_lessons.autocast.cast_policy.policies import differences as differences
from amp_lessons.autocast.cast_policy.policies import entries as entries
from amp_lessons.autocast.cast_policy.policies import policy as policy

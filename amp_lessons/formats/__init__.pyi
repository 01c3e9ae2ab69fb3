"""Where what ``amp_lessons.formats`` offers lies; Python reads it to load a name when it is first used."""

from .blocks import BLOCK_FORMATS as BLOCK_FORMATS
from .blocks import Scaled as Scaled
from .blocks import ScaledFormat as ScaledFormat
from .blocks import ScalingError as ScalingError
from .blocks import per_tensor as per_tensor
from .blocks import scaling_error as scaling_error
from .catalogue import FORMATS as FORMATS
from .compare import Representation as Representation
from .compare import relative_error as relative_error
from .compare import represent as represent
from .compare import side_by_side as side_by_side
from .floats import Fields as Fields
from .floats import FloatFormat as FloatFormat
from .floats import Specials as Specials
from .integers import Grouped as Grouped
from .integers import by_groups as by_groups
from .sums import SUM_METHODS as SUM_METHODS
from .sums import product as product
from .sums import product_errors as product_errors
from .sums import repeated_update as repeated_update
from .sums import running_sum as running_sum
from .sums import tf32_product as tf32_product
from .typed import Typed as Typed
from .typed import parse as parse
from .typed import parse_whole as parse_whole

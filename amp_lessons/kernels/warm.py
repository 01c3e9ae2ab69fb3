"""What a parent imports before it forks; and the proof that it may fork."""

from __future__ import annotations

import gc
import importlib
import os
import pkgutil
import warnings
from collections.abc import Iterable, Iterator

import amp_lessons

# What the lessons import beside the course; PyTorch's own imports of them come late, in the middle of a cell.
LIBRARIES = (
    "torch", "torch._dynamo", "torch.distributed", "torch.utils.checkpoint", "torch.utils.flop_counter",
    "numpy", "matplotlib.pyplot", "matplotlib_inline.backend_inline", "mpl_toolkits.mplot3d",
    "ipywidgets", "anywidget", "PIL.Image", "pygments.lexers", "tqdm.auto",
    "ipykernel.kernelapp", "ipykernel.ipkernel", "ipykernel.debugger", "IPython.extensions.storemagic",
    "PIL.JpegImagePlugin", "PIL.GifImagePlugin", "matplotlib.backends.backend_svg", "sqlite3", "psutil",
)  # fmt: skip
# Of lessons 02, 05 and 07: 90 MiB and more, which pay when many share them.
MODELS = ("transformers", "transformers.models.bert.modeling_bert", "scipy.stats", "sklearn.datasets")

_NOT_IMPORTED = {
    "__main__",
    "attempts",
    "stub",
    "solution",
    "kernels",
    "commands",
    "jobs",
    "_template",
    "pytest",
}

# Each kernel computes with one thread. A pool of threads in the parent would not be in its forks, which wait
# for it: the same lesson took five times as long.
PINNED = {
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "MPLBACKEND": "module://matplotlib_inline.backend_inline",  # as kernels set it, in time
}
SET_HERE = (*PINNED, "MPLCONFIGDIR")  # the last one where a parent serves all


class CannotForkError(Exception):
    """A process may not be forked; the message says why."""


def warm_up(libraries: Iterable[str]) -> None:
    """Import what the lessons import, without computing a gradient: threads of autograd survive no fork.

    Raises CannotForkError if a thread was started all the same.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name in (*libraries, *_rooms()):
            try:
                importlib.import_module(name)
            except ImportError:  # an extra that is not installed
                continue
    threads = len(os.listdir("/proc/self/task"))
    if threads > 1:
        raise CannotForkError(f"{threads - 1} threads were started while modules were imported")
    gc.collect()
    gc.freeze()  # or the first collection in each fork would write to all that it shares


def _rooms() -> Iterator[str]:
    """Name every module of the course that a lesson may import."""
    for found in pkgutil.walk_packages(amp_lessons.__path__, "amp_lessons.", onerror=lambda name: None):
        if not _NOT_IMPORTED.intersection(found.name.split(".")):
            yield found.name

"""What PyTorch says in C++ and a CPU cannot provoke stands in its libraries, as the entries have it."""

from __future__ import annotations

import mmap
import re
from pathlib import Path

import pytest
import torch
import yaml

from amp_lessons import audit
from amp_lessons._base.entries import LOADER
from amp_lessons.audit.explaining import all_messages
from tests.audit.explaining.provoking import heard
from tests.audit.explaining.said_by_torch import TORCH, explained_by, said_by_torch, said_in
from tests.audit.explaining.test_mistakes import MISTAKES

CPU = "lib/libtorch_cpu.so"
CUDA = "lib/libtorch_cuda.so"
C10_CUDA = "lib/libc10_cuda.so"
PYTHON = "lib/libtorch_python.so"
HEADER = "include/ATen/autocast_mode.h"

# What a file of PyTorch's holds of a message in one piece, and the message that is made of it.
IN_FILES = (
    ("unsafe_to_autocast", CPU, "torch.nn.BCELoss are unsafe to autocast.", "binary_cross_entropy and {}"),
    ("autocast_device_unknown", HEADER, "unknown device type for autocast", "{} in get_lower_precision"),
    (
        "old_spelling",
        PYTHON,
        "torch.set_autocast_gpu_dtype(dtype) is deprecated. ",
        "{}Please use torch.set_autocast_dtype('cuda', dtype) instead.",
    ),
    ("autocast_in_a_script", CPU, "Unsupported autocast syntax", "{}"),
    ("autocast_in_a_script", CPU, "Autocast has invalid fast_dtype attribute", "{}"),
    ("autocast_in_a_script", CPU, "Autocast _enabled argument must be a constant", "{}"),
    ("autocast_in_a_script", CPU, "Unsupported case by AMP & JIT", "{}"),
    ("autocast_in_a_script", CPU, "Calls are not expected with AMP & JIT", "{}"),
    ("autocast_in_a_script", CPU, "Unexpected prim::CallMethod form with AMP & JIT", "{}"),
    (
        "layer_of_another_dtype",
        CPU,
        " tensors are not the same dtype, found input tensor with ",
        "Input and parameter{}Half and parameter tensor with Float",
    ),
    ("layer_of_another_dtype", CPU, ") should be the same", "Input type (float) and bias type (c10::Half{}"),
    ("scaled_product", CPU, "mat1 and mat2 must be fp8 types, got: ", "{}Float and Float"),
    ("scaled_product", CPU, "Expected mat1 to be Float8 matrix got ", "{}Float"),
    ("out_of_memory", C10_CUDA, "CUDA out of memory. Tried to allocate ", "{}2.00 GiB. GPU 0 has a total"),
    (
        "bf16_gradients_on_cuda",
        CUDA,
        "_amp_foreach_non_finite_check_and_unscale_cuda",
        "\"{}\" not implemented for 'BFloat16'",
    ),
)

# Entry and words, as they stand in public reports: the CPU's libraries do not hold them, or others say them.
REPORTED = tuple(
    pair
    for section in yaml.load(Path(__file__).with_name("reported.yaml").read_text("utf-8"), LOADER)
    for said in section["said"]
    for pair in said.items()
)


@pytest.mark.parametrize(("name", "file", "piece", "whole"), IN_FILES)
def test_a_file_of_pytorchs_holds_the_words(name, file, piece, whole):
    assert audit.explain(whole.format(piece)).name == name
    path = Path(torch.__file__).parent / file
    if not path.exists():
        pytest.skip(f"this PyTorch has no {file}")
    with path.open("rb") as opened, mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ) as content:
        assert content.find(piece.encode()) != -1


@pytest.mark.parametrize(("name", "text"), REPORTED)
def test_what_was_reported_is_explained_by_one_entry(name, text):
    assert explained_by(text) == [name]


def _witnesses() -> list[str]:
    """Return every message that was found, provoked or reported."""
    sources = {message.source for message in all_messages()} - {"C++"}
    files = [TORCH.parent / source for source in sources if (TORCH.parent / source).exists()]
    return [
        *(said.text for said in said_by_torch()),
        *(text for file in files for text in said_in(file)),
        *(str(each) for mistake in MISTAKES for each in heard(mistake.made)),
        *(whole.format(piece) for _, _, piece, whole in IN_FILES),
        *(text for _, text in REPORTED),
    ]


def test_every_pattern_has_a_witness():
    """None is made up."""
    said = [" ".join(text.split()) for text in _witnesses()]
    patterns = [pattern for message in all_messages() for pattern in message.patterns]
    unseen = [each for each in patterns if not any(re.search(each, text) for text in said)]
    assert set(unseen) <= {_IN_A_PROCESS_OF_ITS_OWN}


_IN_A_PROCESS_OF_ITS_OWN = r"mix of the legacy and new APIs to set the (TF32 (status|flags)|matmul precision)"

"""Whatever the installed PyTorch says of mixed precision in Python is explained, and by one entry."""

from __future__ import annotations

import re

import pytest

from amp_lessons.audit.explaining import all_messages
from tests.audit.explaining.said_by_torch import (
    AMP_FILES,
    TORCH,
    explained_by,
    messages,
    said_by_torch,
    said_in,
)

# By Python itself, of a call that does not fit the function there.
SAID_BY_PYTHON = {
    "custom_function_without_device",
    "old_spelling_with_a_device",
    "no_scaler_in_torch_amp",
    "flag_of_another_library",
    "no_such_name_in_torch_amp",
    "dtype_under_another_name",
}

# Not yet by PyTorch 2.13, no more by it, 2.14 or 2.15, no more by Transformers 5.23, whose files of these
# names say others; and with a tensor's metadata, a device, an operation or a type filled in.
SAID_BY_OTHER_VERSIONS = {
    "compiler_at_fault",
    "custom_function_compiled",
    "no_autocast_on_mps",
    "trainer_without_fp16",
    "sharded_weights_recomputed",
    "plain_beside_sharded",
    "clipped_on_two_meshes",
    "rest_of_a_quantized_model",
    "old_property_of_accelerate",
    "old_flags_of_quantization",
    "scaler_in_compiled_code",
    "tensor_for_a_parameter",
    "grouped_product_in_fp16",
    "tf32_is_off",
    "fp32_product_in_tf32_only",
    "fp8_in_a_triton_kernel",
    "gradients_of_two_dtypes",
    "triton_kernel_of_two_dtypes",
}

_TO_ADD = """PyTorch {version} says what nothing here explains:

{said}

Add an entry for each to amp_lessons/audit/explaining/ (or its words to the pattern of an entry that
has the same meaning and the same cure), and a mistake that provokes it to tests/audit/explaining/."""


def test_every_message_is_explained():
    about_amp = [said for said in said_by_torch() if said.about_amp]
    missing = [f"{said.file}: {said.text}" for said in about_amp if not explained_by(said.text)]
    version = (TORCH / "version.py").read_text()
    version = re.search(r"__version__ = '([^']*)'", version)[1]
    assert not missing, _TO_ADD.format(version=version, said="\n".join(missing))


def test_no_message_has_two_explanations():
    assert not [(said, names) for said in said_by_torch() if len(names := explained_by(said.text)) > 1]


def test_what_says_something_else_is_hardly_ever_explained():
    """A pattern that catches anything would let the tests above pass, whatever PyTorch said."""
    others = [said for said in said_by_torch() if not said.about_amp]
    assert len(others) > 500
    caught = [said for said in others if explained_by(said.text)]
    assert len(caught) < len(others) / 25, caught


def test_a_new_message_in_one_of_the_files_would_be_found():
    source = """
import warnings

def step(self, name):
    reason = f"the scaler of {name} "
    reason += "has gone"
    if self:
        raise RuntimeError(reason)
    assert self, "there " "is {} scaler".format(name)
    torch._check(self, lambda: f"no scaler for {name}")
    warnings.warn("scalers are " + "scarce", stacklevel=2)
"""
    assert set(messages(source)) == {
        "the scaler of x has gone",
        "there is {} scaler",
        "x no scaler for x",
        "scalers are scarce x",
    }


def test_the_files_about_amp_are_read_whole():
    """Counted by another way of reading: lines that begin a statement which says something."""
    near = [*TORCH.glob("**/amp/*.py"), *TORCH.glob("distributed/fsdp/*.py")]
    files = [path for path in near if AMP_FILES.fullmatch(path.relative_to(TORCH.parent).as_posix())]
    sources = [path.read_text() for path in files]
    begun = re.findall(r"^ *(?:raise \w+\(|warnings\.warn\()", "\n".join(sources), re.MULTILINE)
    read = [text for source in sources for text in messages(source)]
    assert len(files) >= 8
    assert len(read) >= len(begun) > 40


@pytest.mark.parametrize("message", all_messages(), ids=lambda message: message.name)
def test_an_entry_names_the_file_that_says_it(message):
    if message.source == "C++" or message.name in SAID_BY_PYTHON:
        return
    file = TORCH.parent / message.source
    if not file.exists():
        pytest.skip(f"there is no {message.source} here")
    said = any(message.matches(text) for text in said_in(file))
    if message.name in SAID_BY_OTHER_VERSIONS and not said:
        pytest.skip("this version does not say it")
    assert said

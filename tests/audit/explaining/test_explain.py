"""Finding an explanation, and showing it."""

from __future__ import annotations

import re
import sys
import time
import warnings
from pathlib import Path

import pytest

from amp_lessons import audit
from amp_lessons.audit.explaining import all_messages
from tests.forms import forms

FP16 = "Attempting to unscale FP16 gradients."
TWICE = "step() has already been called since the last update()."
BLOCKS = "Blockwise quantization only supports 16/32-bit floats, but got torch.uint8"
NOTEBOOKS = Path(__file__).parents[3] / "notebooks"


def test_an_exception_a_warning_and_a_text_are_explained_alike():
    with warnings.catch_warnings(record=True) as recorded:
        warnings.simplefilter("always")
        warnings.warn(FP16, stacklevel=1)
    explained = {audit.explain(each) for each in (FP16, ValueError(FP16), UserWarning(FP16), recorded[0])}
    assert len(explained) == 1
    assert explained.pop().name == "fp16_gradients"


def test_line_breaks_and_other_words_around_it_do_not_matter():
    traceback = f"Traceback (most recent call last):\n  File 'x.py', line 1\nValueError: {FP16}\n"
    assert audit.explain(traceback).said == f"ValueError: {FP16}"
    assert audit.explain(traceback.replace("unscale FP16", "unscale\n      FP16")).name == "fp16_gradients"


@pytest.mark.parametrize(
    "pasted",
    [
        "│ ValueError: Attempting to unscale FP16 │\n│ gradients.                             │",
        "[rank0]: ValueError: Attempting to unscale\n[rank0]: FP16 gradients.",
        "> \x1b[31mValueError\x1b[0m: Attempting to unscale FP16\n> gradients.",
    ],
)
def test_frames_ranks_and_colours_of_a_terminal_are_read_through(pasted):
    assert audit.explain(pasted).name == "fp16_gradients"


@pytest.mark.parametrize("quotes", ["“”‘’", "&quot;&quot;''", "\\\"\\\"''"])
def test_quotes_of_a_word_processor_a_page_and_a_shell_are_read(quotes):
    first, second, third, fourth = re.findall(r"&quot;|\\\"|.", quotes)
    text = f"RuntimeError: {first}addmm_impl_cpu_{second} not implemented for {third}Half{fourth}"
    assert audit.explain(text).name == "no_16_bit_kernel"


def test_what_many_say_in_their_own_words_gives_way_nearby_and_not_far_away():
    kind = "RuntimeError: query and key must have the same dtype"
    assert audit.explain(f"{kind}\nValueError: {FP16}").name == "fp16_gradients"
    assert audit.explain(f"ValueError: {FP16}\n{kind}").name == "fp16_gradients"
    assert audit.explain(f"ValueError: {FP16}\n{'step ' * 100}\n{kind}").name == "tensors_of_two_dtypes"


def test_of_a_log_the_last_error_is_explained_and_a_warning_where_there_is_no_error():
    spelling = "FutureWarning: `torch.cuda.amp.autocast(args...)` is deprecated."
    first = (
        f"x.py:3: {spelling}\n  with autocast():\nTraceback (most recent call last):\nRuntimeError: {TWICE}"
    )
    log = f"{first}\n\nDuring handling of the above exception:\nValueError: {FP16}\nx.py:9: {spelling}"
    assert audit.explain(first).name == "stepped_twice"
    assert audit.explain(log).name == "fp16_gradients"
    assert audit.explain(f"{spelling}\n{spelling}").name == audit.explain(spelling).name


@pytest.mark.parametrize(
    "long", ["x" * 100_000, "x " * 50_000, "💥" * 50_000, "a_" * 50_000, "Error: " * 15_000]
)
def test_a_hundred_thousand_letters_take_a_moment(long):
    began = time.process_time()
    audit.explain(long)
    assert time.process_time() - began < 5


def _raised(outer: BaseException, inner: BaseException, *, explicitly: bool) -> BaseException:
    try:
        try:
            raise inner
        except BaseException as error:
            if explicitly:
                raise outer from error
            raise outer  # noqa: B904
    except BaseException as error:
        return error


@pytest.mark.parametrize("explicitly", [True, False])
def test_what_it_came_from_is_searched(explicitly):
    error = _raised(RuntimeError("epoch 3 failed"), ValueError(FP16), explicitly=explicitly)
    assert audit.explain(error).name == "fp16_gradients"
    assert audit.explain(error).said == FP16
    later = _raised(RuntimeError(TWICE), error, explicitly=explicitly)
    assert audit.explain(later).name == "stepped_twice", "the last raised goes before what it came from"


def test_a_chain_that_bites_its_own_tail_ends():
    first, second = RuntimeError("one"), RuntimeError("two")
    first.__cause__, second.__cause__ = second, first
    assert not audit.explain(first).known


@pytest.mark.skipif(sys.version_info < (3, 11), reason="groups and notes came with Python 3.11")
def test_members_of_a_group_and_notes_are_searched():
    group = ExceptionGroup("two ranks failed", [OSError("disk"), ValueError(FP16)])  # noqa: F821
    assert audit.explain(group).name == "fp16_gradients"
    noted = RuntimeError("failed")
    noted.add_note(f"the worker said: {TWICE}")
    assert audit.explain(noted).name == "stepped_twice"


def test_an_exception_that_cannot_say_what_it_is_hides_no_other():
    class BrokenError(Exception):
        def __str__(self):
            raise KeyError("no")

    assert audit.explain(_raised(BrokenError(), ValueError(FP16), explicitly=True)).known
    assert not audit.explain(BrokenError()).known


@pytest.mark.parametrize(
    "text",
    [
        "Tensors must have same number of dimensions: got 2 and 3",
        "CUDA error: an illegal memory access was encountered",
        "cuDNN error: CUDNN_STATUS_EXECUTION_FAILED",
        "cuDNN error: CUDNN_STATUS_NOT_SUPPORTED. This error may appear if you passed in a non-contiguous "
        "input.",
        "Expected all tensors to be on the same device, but found at least two devices, cuda:0 and cpu!",
        "Expected tensor for argument #1 'indices' to have the same type as tensor for argument #2 "
        "'offsets'; but type torch.IntTensor does not equal torch.LongTensor (while checking arguments for "
        "embedding_bag)",
        "Input type (torch.cuda.HalfTensor) and weight type (torch.HalfTensor) should be the same",
        "Input type (MPSFloatType) and weight type (torch.FloatTensor) should be the same",
        "lax.add requires arguments to have the same dtypes, got int32, float32.",
        "derivative for aten::_scaled_dot_product_efficient_attention_backward is not implemented",
        "The attention mask and the pad token id were not set.",
        "KeyError: 'scale'",
        "RuntimeWarning: invalid value encountered in cast",
        "RecursionError: an infinite loop was detected in the loss graph",
        "MLflow's log_metric() only accepts float and int types",
        "0  NaN  NaN  NaN  2\n1  NaN  NaN  NaN  3",
        "mat1 and mat2 shapes cannot be multiplied (32x10 and 1x4096)",
        "Illegal partition: expected half-head sections summing to 64, got 32",
        "\"bitwise_and_cpu\" not implemented for 'Half'",
        "lm_loss: 2.275809E+00 | number of skipped iterations:   0 | number of nan iterations:   0 |",
        "expected scalar type Long but found Float",
        "[valid] loss_transducer=5, cer_transducer=nan, wer_transducer=nan, loss=5.344, time=1 minute",
        "wer: nan loss: 3.2 | acc: nan",
        "The scale of this GradScaler is made of cheese.",
        "autocast is tired and will not cast any more today",
        "AMP does not like tensors of dtype torch.float16 on Mondays",
        "found_inf is missing from the optimizer x",
        "No bfloat16 gradients were found in the loss scale",
    ],
)
def test_what_has_nothing_to_do_with_precision_is_not_answered(text):
    assert not audit.explain(text).known


@pytest.mark.parametrize("thing", [None, 3, ValueError, [FP16]])
def test_something_else_is_refused_in_words(thing):
    with pytest.raises(TypeError, match="an exception, a warning or the text of one can be explained, not"):
        audit.explain(thing)


def test_one_without_words_is_shown_too():
    for problem in ("", RuntimeError(), "\n \n"):
        assert repr(audit.explain(problem)).startswith("(no message)")


def test_every_entry_is_complete_and_named_once():
    lessons = {path.name[:2] for path in NOTEBOOKS.glob("[0-9][0-9]_*.ipynb")}
    for message in all_messages():
        assert message.lesson in lessons, message.name
        assert message.meaning.endswith("."), message.name
        assert message.cure.endswith("."), message.name
        assert message.meaning.count("`") % 2 == message.cure.count("`") % 2 == 0, message.name
        assert message.seen_at.startswith("https://") or not message.seen_at, message.name
        assert message.source, message.name
    assert len({message.name for message in all_messages()}) == len(all_messages())


def test_an_explanation_in_each_form_takes_nothing_for_markup(golden):
    golden("explanation.txt", forms(audit.explain(f"<b>`autocast` 2**3</b>: {FP16}")))
    golden("explanation_of_another_library.txt", forms(audit.explain(BLOCKS)))
    golden("explanation_of_nothing.txt", forms(audit.explain("a *strange* `thing")))

"""The view of decoding against the calculator that it asks, by what a learner chooses and types."""

import pytest

from amp_lessons._base.text.words import memory
from amp_lessons.course.bench.calculator import DECODERS, decoding
from amp_lessons.course.bench.workloads import MissingExtraError
from amp_lessons.course.views import DecodingView
from amp_lessons.course.views.widgets import decoding as widget
from amp_lessons.measure import GPUS

pytestmark = pytest.mark.slow


@pytest.fixture
def view():
    pytest.importorskip("transformers")
    return DecodingView("GPT-2", context=64)


def test_it_says_and_draws_what_the_calculator_says(view):
    view.bits, view.cache_itemsize, view.gpu = 4, 1, "T4"
    expected = decoding(DECODERS["GPT-2"], 64).on(GPUS["T4"], bits=4, cache_itemsize=1)
    assert view.served == expected
    assert f"weights {memory(expected.weight_bytes)}" in view.caption
    assert f"{memory(12 * 2 * 768)} a token" in view.caption  # layers, keys and values, width; one byte
    assert f"{expected.largest_batch:,} sequences fit: together" in view.caption
    assert f"below {expected.compute_bound_from:,} sequences" in view.caption
    line, bound, *_ = view.picture.figure.axes[0].lines
    batches, rates = line.get_data()
    assert batches[0] == 1
    assert list(rates) == [expected.tokens_per_s(int(batch)) for batch in batches]
    assert expected.compute_bound_from in bound.get_xdata()


@pytest.mark.parametrize(
    ("typed", "words"), [("long", "is a whole number from 1"), ("2000", "knows 1,024 positions")]
)
def test_what_cannot_be_used_is_answered_at_the_field(view, typed, words):
    view.context = typed
    assert words in view._context.error
    assert view.served is None
    assert view.is_outdated
    view.context = "1,000"
    assert not view._context.error
    assert view.served.decoding.context == 1000


def test_a_model_that_does_not_fit_and_a_library_that_is_missing_are_said(view, monkeypatch):
    def missing(*_):
        raise MissingExtraError("Install it: pip")

    tiny = GPUS["T4"].__class__("tiny", 2**29 + 1, 1e9, {"fp16": 1e12}, "")
    monkeypatch.setitem(widget.GPUS, "T4", tiny)
    view.gpu = "T4"
    assert view.served.largest_batch == 0
    assert "Not even one fits" in view.caption
    monkeypatch.setattr(widget, "decoding", missing)
    view.context = 65
    assert "Install it" in view.caption

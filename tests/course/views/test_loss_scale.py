"""The fates of gradients, against PyTorch's cast and a real backward pass; the story says what is typed."""

import functools
import re

import pytest
import torch

from amp_lessons import scaling
from amp_lessons._base.text.words import power, relative
from amp_lessons.course.material import data, models
from amp_lessons.course.views import CensusView, LossScaleView
from amp_lessons.course.views.base import states
from amp_lessons.course.views.widgets.loss_scale import describe
from amp_lessons.scaling.fates import FATES, Census
from tests.course.views.conftest import faults_for_a_phone
from tests.raised import lowered

cross_entropy = torch.nn.functional.cross_entropy


@pytest.fixture
def batch():
    return data.batches(data.digits().train, 16)[0]


@pytest.fixture
def model():
    return models.digits_classifier(32)


@pytest.fixture
def passes(model):
    """Collect, for each forward pass, the dtype that came out of it."""
    seen = []
    model.register_forward_hook(lambda module, args, output: seen.append(output.dtype))
    return seen


@pytest.fixture
def live(model, batch, passes):
    return LossScaleView(model, batch, cross_entropy)


def test_the_caption_says_what_pytorchs_own_cast_does():
    gradients = torch.randn(20_000) * torch.exp2(6 * torch.randn(20_000) - 20)
    view = CensusView(gradients)
    for exponent in (0, 4, 8):
        view.exponent = exponent
        cast = (gradients * 2.0**exponent).half()
        norm = gradients[cast == 0].norm() / gradients.norm()
        assert (
            f"Scale 2^{exponent}: {100 * (cast == 0).float().mean():.1f} % of 20,000 gradients vanish "
            f"({lowered(relative(norm))} of their norm)"
        ) in lowered(view.caption)
        assert ("none overflow" in view.caption) == (not cast.isinf().any())


@pytest.mark.parametrize("typed", ["banana", " "])
def test_examples_in_a_message_are_accepted_by_the_field(typed):
    view = CensusView(torch.ones(3))
    view.scale = typed
    for example in re.search(r"Try (.*)\.", view._typed.error)[1].replace(" or ", ", ").split(", "):
        view.scale = example
        assert view._typed.error == ""


def test_a_single_gradient_that_overflows_is_seen_in_the_picture():
    view = CensusView(torch.cat([torch.full((1_000_000,), 2.0**-20), torch.ones(1)]))
    (axes,) = view.picture.figure.axes
    *_, overflow = view.picture.moving
    seen = []
    for view.exponent in (0, 17):
        bars = overflow.get_data()
        seen.append((bars.values - bars.baseline).max() / axes.get_ylim()[1])
    assert seen[0] == 0
    assert seen[1] * axes.bbox.height > 5, "pixels"


def test_every_move_of_the_live_view_is_one_real_backward_pass_and_another_layer_none(
    live, model, batch, passes
):
    torch.nn.init.normal_(
        next(model.parameters())
    )  # it sees that the model was trained on: once more in fp32
    weights = [parameter.clone() for parameter in model.parameters()]
    assert passes == [torch.float32, torch.float16]
    for exponent in (16, 40, 7):
        live.exponent = exponent
        seen = len(passes)
        assert live.caption == describe(scaling.backward_at(model, batch, cross_entropy, 2.0**exponent))
        del passes[seen:]  # those of the line above
    assert passes == [torch.float32, torch.float16, torch.float32, *[torch.float16] * 3]
    whole = live.caption
    live.layer = live._layer.options[1]
    assert live.caption != whole
    assert len(passes) == 6
    live.dtype = torch.bfloat16
    assert all(parameter.grad is None for parameter in model.parameters())
    assert all(map(torch.equal, weights, model.parameters()))


def test_what_cannot_be_run_at_all_is_raised(model, batch):
    with pytest.raises(ValueError, match="one number"):
        LossScaleView(model, batch, lambda output, target: output)
    with pytest.raises(TypeError, match="a pair"):
        LossScaleView(model, batch[0], cross_entropy)


def test_zeros_and_infinities_of_the_true_gradient_are_told_apart():
    census = scaling.census([torch.tensor([0.0, 1.0, float("inf")])])
    assert "of 1 nonzero gradients" in describe(census)
    assert "1 were inf or nan" in describe(census)


def test_it_says_in_short_whether_a_scale_is_safe(live):
    for exponent, said in ((12, "✓ Safe: none vanish."), (40, "✗ Too far: some overflow.")):
        live.exponent = exponent
        assert live.page.in_short == states.page_shown(live)["in_short"] == said
        assert live.page.goal[1] == ""
    half_vanish = scaling.census([torch.tensor([2.0**-30, 2.0**-10])])
    assert live.verdict(half_vanish)[0] == "✗ Not yet: 50.0 % vanish."
    assert CensusView(torch.ones(1)).page.in_short == "", "the lesson asks there for no window"


def test_it_says_which_end_of_the_window_is_found_once_half_that_scale_was_tried(batch):
    live = LossScaleView(models.digits_classifier(seed=0), batch, lambda *args: cross_entropy(*args) / 2**14)
    ends = {}
    for live.exponent in range(41):
        if live.goal[1]:
            ends[live.exponent] = live.in_short, live.goal.at, live.goal.words
    (first, begins), (last, ends_with) = ends.items()
    assert begins == ("✓ The safe range begins here.", first / 40, power(2, first))
    assert ends_with == ("✗ Overflow begins here.", (last - 1) / 40, power(2, last - 1))
    census = functools.partial(scaling.backward_at, live._probe._model, batch, live._probe._loss_fn)
    least, below = (census(2.0**exponent).underflow_fraction for exponent in (first, first - 1))
    assert least < 0.1 <= below
    assert [census(2.0**exponent).overflowed > 0 for exponent in (last - 1, last)] == [False, True]
    live.scale = 1.5 * 2.0**first
    live.scale = 3 * 2.0**first
    assert live.goal[1] == "", "of numbers between powers of two none is an end"


@pytest.mark.parametrize(("fits", "said"), [(999, True), (9, False)])
def test_the_caption_says_that_bars_of_few_are_drawn_taller(fits, said):
    few = scaling.census([torch.tensor([1.0] * fits + [2.0**17])])
    assert ("overflow (drawn taller, so that they show)." in describe(few)) is said


@pytest.mark.parametrize(("scale", "said"), [(2.0**21, False), (2.0**10, True)])
def test_what_would_fit_and_overflows_all_the_same_is_explained(scale, said):
    why = "all overflow, small ones too: an inf spreads through the backward pass."
    fates = {fate: {} for fate in FATES} | {"overflowed": {-5: 3}}
    assert (why in describe(Census("fp16", scale, 0, 0, fates, 0.0, 0.0))) is said


def test_for_a_phone_the_bars_are_drawn_when_pages_ask_and_then_follow():
    view = CensusView(torch.tensor([2.0**-20, 2.0**-10]), exponent=3)
    view.scale = 2.0**12
    assert "narrow" not in vars(view.picture), "it would be drawn for nobody"
    with states.unpainted(view):
        first = view.page.outlines
        assert len(first) == 2 * len(view.picture.moving)
        view.scale = 2.0**20
        moved = [name for name in first if view.page.outlines[name] != first[name]]
        assert {int(name.rpartition("-")[2]) >= len(view.picture.moving) for name in moved} == {False, True}
    assert len(view.page.outlines) == len(view.picture.moving)


@pytest.mark.parametrize("dtype", CensusView.dtypes)
def test_for_a_phone_all_can_be_read_down_to_the_exponents(dtype):
    view = CensusView(torch.tensor([2.0**-20, 2.0**-10]), dtype)
    assert list(faults_for_a_phone(view.picture.narrow)) == []

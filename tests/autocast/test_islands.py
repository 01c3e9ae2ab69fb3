"""A module is named as an island if it goes wrong in 16 bits and is right in fp32, and only then."""

from __future__ import annotations

import copy
import math

import pytest
import torch
from torch import nn

from amp_lessons.autocast import cuda_rules, find_islands, in_fp32
from tests.measure.architectures import Made

HALVES = (torch.float16, torch.bfloat16)


class Energy(nn.Module):
    """Divides by the norm of a row; the sum of squares overflows, and what comes out is a finite 0."""

    def forward(self, hidden):
        return hidden / (hidden * hidden).sum(-1, keepdim=True).sqrt()


class Large(nn.Module):
    def forward(self, x):
        return x * 1e6


def cubed(self, x):
    """Overflow between two layers, in operations that belong to neither."""
    hidden = self.first(x)
    cube = hidden * hidden * hidden
    return self.second(cube / cube.abs().amax())


def variance(self, x):
    """Subtract two large numbers that are nearly the same."""
    x = x + 100
    return (x * x).mean(-1, keepdim=True) - x.mean(-1, keepdim=True).square()


def small(middle, width=16):
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, width), middle, nn.Linear(width, 4))


def batch(scale=1.0):
    return torch.randn(6, 8, generator=torch.Generator().manual_seed(1)) * scale


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("device_type", ["cuda", "cpu"])
def test_a_healthy_model_needs_no_island(dtype, device_type):
    model = small(nn.Sequential(nn.LayerNorm(16), nn.GELU(), nn.Dropout(0.5), nn.BatchNorm1d(16)))
    found = find_islands(model, batch(), dtype=dtype, device_type=device_type)
    assert found.names == found.beyond == found.unexamined == ()
    assert found.examined == len(list(model.modules()))


def test_a_finite_output_may_be_wrong_too_and_bf16_has_the_range():
    (island,) = find_islands(small(Energy()), batch(1000)).found
    assert (island.module, island.kind, island.overflows) == ("1", "Energy", False)
    assert island.error == pytest.approx(1.0)
    assert island.island_error < 0.01
    assert find_islands(small(Energy()), batch(1000), dtype=torch.bfloat16).names == ()


def test_operations_between_layers_belong_to_the_module_that_calls_them():
    cube = Made(cubed, first=nn.Linear(16, 16), second=nn.Linear(16, 16))
    (island,) = find_islands(small(cube), batch(500)).found
    assert (island.module, island.error) == ("1", math.inf)


@pytest.mark.parametrize("dtype", HALVES)
def test_what_goes_wrong_without_overflow_is_found(dtype):
    model = nn.Sequential(nn.Linear(8, 16), nn.Sequential(Made(variance), nn.Linear(1, 4)))
    assert "1.0" in find_islands(model, batch(), dtype=dtype).names


def test_an_island_whose_result_fits_no_fp16_leads_to_another():
    model = nn.Sequential(nn.Linear(8, 16), Large(), nn.Linear(16, 16), nn.LayerNorm(16), nn.Linear(16, 4))
    found = find_islands(model, batch())
    assert found.names == ("1", "2")
    assert [island.kind for island in found.found] == ["Large", "Linear"]


def test_where_the_inputs_are_too_coarse_the_caller_is_the_island():
    shift = nn.Linear(8, 8)
    nn.init.constant_(shift.bias, 3000)
    shift.weight.data.mul_(0.1)
    difference = Made(lambda self, x: x - 3000)
    shifted = Made(lambda self, x: self.difference(self.shift(x)), shift=shift, difference=difference)
    assert find_islands(nn.Sequential(shifted, nn.Linear(8, 4)), batch()).names == ("0",)


def test_a_model_of_islands_is_right_with_them_and_wrong_without_any():
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Linear(8, 16), Energy(), nn.Linear(16, 16), Large(), nn.LayerNorm(16), nn.Linear(16, 4)
    )
    x = batch(1000)
    expected = model(x)

    def error(names):
        with cuda_rules(), in_fp32(model, names), torch.autocast("cpu", dtype=torch.float16):
            difference = (model(x).float() - expected).norm() / expected.norm()
        return math.inf if difference.isnan() else float(difference.detach())

    names = find_islands(model, x).names
    assert names == ("1", "3")
    assert error(names) < 0.01
    assert all(error(set(names) - {name}) > 0.1 for name in names)


def test_masks_are_not_mistaken_for_numbers():
    attention = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True)
    padding = torch.zeros(3, 5).index_fill(1, torch.tensor([4]), torch.finfo(torch.float32).min)
    x = torch.randn(3, 5, 16)
    assert find_islands(attention, x, src_key_padding_mask=padding).names == ()


def test_nothing_is_left_of_it():
    model = small(nn.Sequential(nn.BatchNorm1d(16), nn.Dropout(0.5)))
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}

    def attributes():
        hooks = [len(each._forward_hooks) + len(each._forward_pre_hooks) for each in model.modules()]
        return hooks, [sorted(vars(each)) for each in model.modules()]

    drawn, had = torch.get_rng_state(), attributes()
    find_islands(model, batch())
    assert all(torch.equal(before[name], tensor) for name, tensor in model.state_dict().items())
    assert attributes() == had
    assert torch.equal(drawn, torch.get_rng_state())
    assert not torch.is_autocast_enabled("cpu")


def test_what_there_is_no_time_for_and_what_cannot_run_twice_is_said():
    found = find_islands(small(Energy()), batch(1000), seconds=1e-9)
    assert found.found == ()
    assert set(found.unexamined) == {"0", "1", "2", ""}
    runs = iter(range(2))
    twice = Made(lambda self, x: x + 0 * next(runs))
    assert find_islands(small(twice), batch()).unexamined == ("1",)


@pytest.mark.parametrize("place", ["first", "middle", "", "weight"])
def test_hooks_that_change_what_passes_are_no_error(place):
    """A module that runs again by itself has been through its hooks already, and so have its parts."""
    model = small(nn.LayerNorm(16))
    if place == "weight":
        model[0] = nn.utils.spectral_norm(model[0]).eval()  # computes the weight in a pre-hook
    else:
        module = {"first": model[0], "middle": model[1], "": model}[place]
        module.register_forward_pre_hook(lambda module, args: (args[0] + 3,))
        module.register_forward_hook(lambda module, args, output: 2 * output)
    found = find_islands(model, batch())
    assert found.names == found.beyond == found.unexamined == ()
    assert len(model(batch())) == 6


def test_a_module_with_noise_or_a_memory_of_its_own_is_not_blamed():
    def remembering(self, x):
        self.seen += x.float().mean().item()
        return x - self.seen

    def noisy():
        return Made(lambda self, x: x + torch.randn(x.shape))

    for module in (noisy(), Made(remembering, seen=0.0)):
        found = find_islands(nn.Sequential(noisy(), nn.Linear(8, 16), module), batch())
        assert (found.names, found.beyond) == ((), ())
        assert "2" in found.unexamined


def test_weights_in_16_bits_and_names_that_are_not_there_are_refused():
    with pytest.raises(ValueError, match=r"0\.weight is in torch\.float16 already"):
        find_islands(small(nn.ReLU()).half(), batch())
    with (
        pytest.raises(ValueError, match="no module of this model is called 'norm'"),
        in_fp32(small(Energy()), ["norm"]),
    ):
        pass


def test_a_copy_of_an_island_computes_with_its_own_weights():
    """As averaged weights are a copy of a model."""
    model = nn.Sequential(nn.Linear(4, 2))
    with in_fp32(model, ["0"]):
        copied = copy.deepcopy(model)
        nn.init.zeros_(copied[0].weight)
        nn.init.ones_(copied[0].bias)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            out = copied(torch.randn(3, 4).bfloat16())
    assert out.dtype == torch.float32
    assert torch.equal(out, torch.ones(3, 2))


def test_in_fp32_casts_what_comes_in_and_puts_the_module_back():
    model = small(nn.Identity())
    seen = []
    model[2].register_forward_hook(lambda module, args, output: seen.append(output.dtype))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        with in_fp32(model, ["2"]):
            model(batch())
        model(batch())
    assert seen == [torch.float32, torch.bfloat16]
    assert "forward" not in vars(model[2])

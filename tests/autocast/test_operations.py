"""Operations found by name and rule, against the tables of overloads that they summarise."""

from __future__ import annotations

import pytest

from amp_lessons import autocast
from amp_lessons.autocast import Policy

FP32 = {Policy.FP32, Policy.FP32_SET_OPT_DTYPE, Policy.FP32_APPEND_DTYPE}


def names(found):
    return [operation.name for operation in found]


def base_name(overload):
    return overload.removeprefix("aten::").partition(".")[0]


@pytest.mark.parametrize("device_type", ["cuda", "cpu", "mps", "xpu"])
@pytest.mark.parametrize(
    ("rule", "policies"),
    [
        ("lower precision", {Policy.LOWER_PRECISION}),
        ("fp32", FP32),
        ("widest input dtype", {Policy.PROMOTE}),
        ("banned", {Policy.BANNED}),
    ],
)
def test_a_rule_keeps_exactly_what_the_device_lists_under_it(device_type, rule, policies):
    listed = {base_name(each) for each, kind in autocast.policy(device_type).items() if kind in policies}
    assert set(names(autocast.operations(rule=rule, device_type=device_type))) == listed


def test_listed_overloads_of_one_operation_agree_so_that_one_word_says_it_all():
    words = {}
    for overload, row in autocast.atlas().items():
        for device, kind in row.items():
            if kind is not None:
                rule = "fp32" if kind in FP32 else kind.value
                words.setdefault((overload.partition(".")[0], device), set()).add(rule)
    assert [where for where, rules in words.items() if len(rules) > 1] == []


def test_every_listed_operation_is_there_once_in_alphabetical_order_and_an_exact_match_first():
    everything, norms = names(autocast.operations()), names(autocast.operations("norm"))
    assert everything == sorted({base_name(name) for name in autocast.atlas()})
    assert norms == ["norm", *(name for name in everything if "norm" in name and name != "norm")]


@pytest.mark.parametrize("spelling", ["softmax", " softmax ", "F.softmax", "torch.softmax", "aten::softmax"])
def test_people_may_write_what_they_write_in_code(spelling):
    assert names(autocast.operations(spelling)) == ["softmax", "log_softmax"]


def test_an_operation_in_no_list_is_there_when_it_is_named():
    (mean,) = autocast.operations("mean")
    assert mean.name == "mean"
    assert set(mean.rules.values()) == {autocast.UNLISTED}
    assert autocast.operations("no_such_operation") == ()


def test_differing_keeps_what_cuda_and_the_cpu_treat_differently():
    differing = autocast.operations(differing=True)
    assert {"softmax", "layer_norm", "binary_cross_entropy"} <= set(names(differing))
    assert {"linear", "mse_loss"}.isdisjoint(names(differing))
    assert all(operation.rules["cuda"] != operation.rules["cpu"] for operation in differing)


@pytest.mark.parametrize(("argument", "wrong"), [("rule", "half"), ("device_type", "tpu")])
def test_a_rule_or_device_that_does_not_exist_is_refused(argument, wrong):
    with pytest.raises(ValueError, match=wrong):
        autocast.operations(**{argument: wrong})

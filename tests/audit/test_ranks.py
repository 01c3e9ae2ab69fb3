"""Audits of trainings on several real processes: nothing is changed, and how ranks part is told."""

from __future__ import annotations

from functools import cache

import pytest
import torch

from amp_lessons import audit, parallel
from tests.audit import loops_of_ranks as loops


@cache
def joined(train):
    """Return one report of a training of two ranks; what several tests ask of it, runs once."""
    return audit.of_ranks(report for _, report in parallel.run(loops.watched, 2, train))


def codes(report):
    return [finding.code for finding in report.findings]


@pytest.mark.parametrize("train", [loops.ddp, loops.fsdp2, loops.fsdp2_with_a_scaler, loops.fsdp1])
def test_a_right_training_is_clean_and_its_weights_and_collectives_are_those_without_the_audit(train):
    ranks = parallel.run(loops.plain_and_watched, 2, train)
    for (plain, calls), (watched, watched_calls), _ in ranks:
        assert all(map(torch.equal, watched, plain))
        assert watched_calls == calls
        assert calls
    report = audit.of_ranks(report for *_, report in ranks)
    assert report.findings == ()
    assert not [sentence for sentence in report.not_seen if "trouble" in sentence]
    assert [(rank.rank, rank.steps, rank.ended) for rank in report.ranks] == [(0, 6, ""), (1, 6, "")]


@pytest.mark.parametrize("train", [loops.ddp_that_overflows, loops.fsdp2_with_a_scaler])
def test_ranks_that_skip_together_are_clean(train):
    report = joined(train)
    assert report.passed
    assert [rank.skipped for rank in report.ranks] == [(3,), (3,)]
    assert [step.happened for step in report.steps] == [True] * 3 + [False] + [True] * 2


@pytest.mark.parametrize(
    ("train", "ran"),
    [
        (loops.fsdp2, "bf16 by FSDP or by hand, autocast"),
        (loops.fsdp2_with_a_scaler, "fp16 by FSDP or by hand, autocast"),
        (loops.fsdp2_of_half_masters, "autocast"),
    ],
)
def test_what_a_policy_of_shards_computes_in_is_said(train, ran):
    assert f"What ran: {ran}" in str(joined(train))


def test_a_step_that_one_rank_skipped_and_the_other_made_is_a_mistake():
    report = joined(loops.ddp_without_sync)
    assert codes(report) == ["weights_apart", "skipped_apart"]  # the cause comes first
    apart, skipped = report.findings
    assert (apart.first_step, skipped.first_step) == (0, 3)
    assert skipped.message.startswith("rank 1 skipped step 4, which rank 0 made: ")
    assert (skipped.certainty, skipped.ranks, skipped.lesson) == ("seen", (0, 1), "08")
    assert [rank.skipped for rank in report.ranks] == [(), (3,)]
    assert report.ranks[1].scales == ((0, 256.0), (4, 128.0))


def test_scales_that_differ_are_a_mistake():
    report = joined(loops.ddp_of_two_scales)
    assert codes(report) == ["scales_apart"]
    assert "step 1 with different loss scales, 128 and 256" in report.findings[0].message


def test_ranks_that_share_nothing_may_be_meant_to():
    report = joined(loops.alone)
    assert codes(report) == ["skipped_apart"]
    assert report.findings[0].certainty == "likely"
    assert "a model of its own" in report.findings[0].likely


def test_shards_in_16_bits_are_named():
    report = joined(loops.fsdp2_of_half_masters)
    assert codes(report) == ["masters_not_fp32", "decay_rounded_away"]
    finding, _ = report.findings
    assert (finding.certainty, finding.count, finding.ranks) == ("likely", 3, (0, 1))
    assert "torch.bfloat16" in finding.message
    assert any("distributed tensors" in sentence for sentence in report.not_seen)


def test_shards_are_added_up_to_what_one_rank_of_ddp_sees_of_the_whole():
    """The same gradients, reduced in fp32 by either engine: the censuses are of equally many."""

    def train():
        return loops.trained(loops.sharded(loops.network(), None))

    def replicated():
        return loops.trained(loops.DistributedDataParallel(loops.network()))

    shards, copies = joined(train), joined(replicated)
    assert shards.layers.keys() == copies.layers.keys()
    for name, layer in shards.layers.items():
        whole = copies.layers[name]
        assert (layer.part, layer.parameters) == ("", whole.parameters)
        for mine, theirs in zip(layer.history, whole.history, strict=True):
            assert mine.norm == pytest.approx(theirs.norm, rel=1e-3)
            for dtype, census in mine.counterfactual.items():
                assert census.total == theirs.counterfactual[dtype].total == whole.parameters
    for mine, theirs in zip(shards.steps, copies.steps, strict=True):
        assert mine.sampled == theirs.sampled
        if mine.sampled:
            assert mine.gradient_norm == pytest.approx(theirs.gradient_norm, rel=1e-3)
        assert mine.loss == pytest.approx(theirs.loss, rel=1e-3)


@pytest.mark.parametrize(("dtype", "loses"), [(torch.float32, False), (torch.bfloat16, True)])
def test_updates_that_16_bit_shards_lose_are_seen_on_each_rank(dtype, loses):
    for still, lost, found in parallel.run(loops.a_step_of_shards, 2, dtype):
        assert ("masters_not_fp32" in found) is loses
        assert lost == pytest.approx(still, abs=0.1)  # the bias counts as well
        assert (lost > 0.5) is loses


def test_what_is_joined_are_reports():
    with pytest.raises(TypeError, match="each item of reports is the report of a rank"):
        audit.of_ranks([1])
    with pytest.raises(ValueError, match="no reports to join"):
        audit.of_ranks([])

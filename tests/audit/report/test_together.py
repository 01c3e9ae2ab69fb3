"""Reports of several ranks as one."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch

from amp_lessons.audit import Report, of_ranks
from amp_lessons.audit.report.steps import ranks_in_words
from amp_lessons.audit.report.together import joined, joined_layers
from amp_lessons.audit.seen import LayerSeen, StepSeen
from tests.audit.report.samples import CLIPPED, layer_step, report

WHOLE = torch.cat([torch.tensor([0.0, math.inf]), torch.logspace(-12, 2, 30)])


def of_gradients(gradients, **of_layer):
    layer = LayerSeen("body", len(WHOLE), {"weight": "fp32"}, (layer_step(0, gradients),), **of_layer)
    return Report((), (StepSeen(0, 0, True, 16.0, 2.0, True, float(gradients.norm())),), {"body": layer})


def test_the_census_of_all_shards_is_that_of_the_whole():
    shards = [of_gradients(part, part=f"{i + 1}/2") for i, part in enumerate((WHOLE[:7], WHOLE[7:]))]
    together, whole = of_ranks(shards).to_dict(), of_gradients(WHOLE).to_dict()
    (mine,), (wanted,) = (each["layers"][0]["history"] for each in (together, whole))
    for one, other in [(mine["census"], wanted["census"])] + [
        (mine["counterfactual"][name], census) for name, census in wanted["counterfactual"].items()
    ]:
        for key, value in other.items():
            assert one[key] == (pytest.approx(value) if isinstance(value, float) else value), key
    assert together["steps"][0]["gradient_norm"] == math.inf


def test_equal_copies_count_once_and_so_do_copies_of_shards():
    copies = of_ranks([of_gradients(WHOLE[2:], replicated=True)] * 3)
    assert copies.layers == {"body": of_gradients(WHOLE[2:], replicated=True).layers["body"]}
    halves = [of_gradients(part, part=f"{i + 1}/2") for i, part in enumerate((WHOLE[2:9], WHOLE[9:]))]
    twice = of_ranks([*halves, *halves])  # two groups of two, as hybrid sharding has them
    assert twice.layers == of_ranks(halves).layers
    assert twice.steps[0].gradient_norm == pytest.approx(float(WHOLE[2:].norm()))


def test_findings_name_the_ranks_that_saw_them():
    once = replace(CLIPPED, count=1, first_step=3)
    together = of_ranks([Report((CLIPPED,)), Report(()), Report((once,))])
    (finding,) = together.findings
    assert (finding.ranks, finding.count, finding.first_step) == ((0, 2), 40, 0)
    assert "40 times, first at step 1, on ranks 0 and 2" in str(together)
    assert not together.passed


def test_what_was_only_likely_on_one_rank_and_seen_on_another_was_seen():
    together = of_ranks([Report((replace(CLIPPED, likely="by its signs"),)), Report((CLIPPED,))])
    assert together.findings[0].certainty == "seen"


def test_the_rank_that_ended_first_is_told_first():
    reports = {0: replace(report(), ended="RuntimeError: gone"), 1: replace(report(), ended="ValueError")}
    assert joined(reports, ended_first=[1, 0]).ended == "rank 1: ValueError; rank 0: RuntimeError: gone"


def test_the_first_nonfinite_says_its_rank():
    later = replace(report().first_nonfinite, step=9)
    together = of_ranks([replace(report(), first_nonfinite=later), report()])
    assert together.first_nonfinite == replace(report().first_nonfinite, rank=1)
    assert "on rank 1, in the" in str(together)


def test_what_one_rank_could_not_see_names_it():
    there = (Report((), not_seen=("both", "mine")), Report((), not_seen=("both",)))
    assert of_ranks(there).not_seen == ("both", "on rank 0: mine")


def test_other_numbers_of_steps_are_a_remark():
    whole = replace(report(), ended="")
    short = replace(whole, steps=whole.steps[:2])
    by_code = {each.code: each for each in of_ranks([whole, short]).findings}
    remark = by_code["steps_apart"]
    assert remark.kind == "note"
    assert "4 on rank 0 and 2 on rank 1" in remark.message
    ended = replace(short, ended="ValueError")
    assert "steps_apart" not in {each.code for each in of_ranks([whole, ended]).findings}


def test_ranks_with_other_layers_are_not_compared():
    """The stages of a pipeline skip what they skip."""
    stage = replace(report(), layers={"other": replace(report().layers["head"], name="other")})
    kept_on = replace(stage, steps=tuple(replace(step, happened=True) for step in report().steps))
    assert {each.code for each in of_ranks([report(), kept_on]).findings} == {
        each.code for each in report().findings
    }


def test_shards_whose_loss_scales_came_apart_are_added_up_all_the_same():
    there = of_gradients(WHOLE[:7], part="1/2").layers["body"]
    apart = replace(there.history[0], census=replace(there.history[0].census, scale=2.0))
    here = replace(there, part="2/2", history=(apart,))
    reports = {rank: Report((), layers={"body": layer}) for rank, layer in enumerate((there, here))}
    census = joined_layers(reports)["body"].history[0].census
    assert (census.scale, census.total) == (16.0, 14)


def test_a_long_end_is_cut_in_the_table_and_told_in_full_elsewhere():
    words = " ".join(["long"] * 40)
    text = str(of_ranks([replace(report(), ended=words), report()]))
    assert "long …" in text
    assert " ".join(text.split()).count(f"rank 0: {words}") == 1


@pytest.mark.parametrize(
    ("ranks", "words"),
    [([3], "rank 3"), ([0, 1], "ranks 0 and 1"), (range(8), "ranks 0 to 7"), ([0, 2, 5], "ranks 0, 2 and 5")],
)
def test_ranks_in_words(ranks, words):
    assert ranks_in_words(ranks) == words

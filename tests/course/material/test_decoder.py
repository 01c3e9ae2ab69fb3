"""The decoder of lesson 11: what it computes, and in which dtype."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from amp_lessons import decoder
from amp_lessons.course.material.decoder import PARTS, Arithmetic, all_in, only

VOCABULARY = 50


@pytest.fixture
def model():
    return decoder.decoder(VOCABULARY)


@pytest.fixture
def text():
    return torch.randint(VOCABULARY, (3, 20), generator=torch.Generator().manual_seed(0))


def test_it_predicts_from_what_came_before_alone(model, text):
    later = text.clone()
    later[:, 12:] = 7
    assert torch.allclose(model(text)[:, :12], model(later)[:, :12], atol=1e-6)
    assert not torch.allclose(model(text)[:, 12:], model(later)[:, 12:], atol=1e-2)


def test_its_attention_is_pytorchs(model):
    attention, hidden = model.blocks[0].attention, torch.randn(2, 9, 64)
    split = attention.query_key_value(hidden).unflatten(-1, (3, 4, -1)).permute(2, 0, 3, 1, 4)
    mixed = F.scaled_dot_product_attention(*split, is_causal=True)
    expected = attention.out(mixed.transpose(1, 2).flatten(-2))
    assert torch.allclose(attention(hidden, decoder.FP32), expected, atol=1e-5)


def test_each_token_is_computed_by_the_expert_that_was_chosen(model):
    experts, hidden = model.blocks[0].experts, torch.randn(30, 64)
    output, chosen, _ = experts(hidden, decoder.FP32, None)
    chances = experts.router(hidden).softmax(-1)
    assert torch.equal(chosen, chances.argmax(-1))
    assert len(chosen.unique()) > 1
    for row, (token, expert) in enumerate(zip(hidden, chosen, strict=True)):
        alone = experts.down[expert] @ F.silu(experts.up[expert] @ token) * chances[row, expert]
        assert torch.allclose(output[row], alone, atol=1e-5)


@pytest.mark.parametrize("part", PARTS)
def test_every_part_can_compute_in_a_dtype_of_its_own(model, text, part):
    seen = []

    def look(operand):
        seen.append(operand.dtype)
        return operand

    how = only(part, torch.bfloat16)
    assert how.run(part, look, torch.ones(1)).dtype == torch.float32
    assert seen == [torch.bfloat16]
    exact = decoder.log_probabilities(model, text, text)
    assert not torch.equal(decoder.log_probabilities(model, text, text, how), exact)
    assert torch.equal(decoder.log_probabilities(model, text, text), exact)  # the weights are what they were
    rest = all_in(torch.bfloat16, but=(part,))
    assert set(rest.dtypes) == set(PARTS) - {part}


def test_what_is_not_there_is_refused(model):
    with pytest.raises(ValueError, match="there is no part mlp; the parts are embedding"):
        only("mlp", torch.bfloat16)
    with pytest.raises(ValueError, match="65 characters do not fit into a context of 64"):
        model(torch.zeros(1, 65, dtype=torch.long))
    with pytest.raises(ValueError, match="parts is at least 1, not 0"):
        decoder.split_product(0)


def test_log_probabilities_are_those_of_the_cross_entropy(model, text):
    found = decoder.log_probabilities(model, text[:, :-1], text[:, 1:])
    loss = F.cross_entropy(model(text[:, :-1]).flatten(0, 1), text[:, 1:].flatten(), reduction="none")
    assert torch.allclose(-found.flatten(), loss, atol=1e-5)


def test_experts_can_be_replayed(model, text):
    model(text)
    taken = [1 - chosen.clamp(max=1) for chosen in model.chosen]
    model(text, Arithmetic(routes=taken))
    assert all(map(torch.equal, model.chosen, taken))


def test_imbalance_is_one_where_experts_are_used_alike_and_their_number_where_one_is_used(model, text):
    with torch.no_grad():
        for block in model.blocks:
            block.experts.router.weight.zero_()
    alike = [torch.arange(text.numel()) % 4 for _ in model.blocks]
    model(text, Arithmetic(routes=alike))
    assert model.imbalance.item() == pytest.approx(1)
    hidden = torch.ones(8, 64)
    experts = model.blocks[0].experts
    with torch.no_grad():
        experts.router.weight[2] = 1.0
    assert experts(hidden, decoder.FP32, None)[2].item() == pytest.approx(4)


def test_the_cache_is_what_attention_reads(model, text):
    shapes = []

    def look(cached):
        shapes.append(tuple(cached.shape))
        return torch.zeros_like(cached)

    model(text, Arithmetic(cache=look))
    assert shapes == [(3, 4, 20, 16)] * 4  # keys and values of two blocks
    assert model.largest_score == 0


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_a_split_product_is_the_product_up_to_its_rounding(dtype):
    draw = torch.Generator().manual_seed(0)
    x, weight = (torch.randn(40, 256, generator=draw).to(dtype) for _ in range(2))
    exact = x.double() @ weight.double().T
    bound = 2 * torch.finfo(dtype).eps * (x.double().abs() @ weight.double().abs().T).max()
    for parts in (1, 2, 3, 8):
        found = decoder.split_product(parts)(x, weight)
        assert found.dtype == dtype
        assert (found.double() - exact).abs().max() < bound
    assert not torch.equal(decoder.split_product(8)(x, weight), decoder.split_product(2)(x, weight))


def test_pieces_that_are_summed_in_fp32_hardly_differ():
    draw = torch.Generator().manual_seed(0)
    x, weight = (torch.randn(40, 256, generator=draw).bfloat16() for _ in range(2))
    whole = decoder.split_product(1)(x, weight)
    products = [decoder.split_product(8, rounded=each)(x, weight) for each in (True, False)]
    off = [(each != whole).float().mean() for each in products]
    assert off[0] > 0.3 > 0.01 > off[1]


def test_it_continues_with_the_likeliest_character(model, text):
    longer = decoder.continued(model, text[:, :5], 4)
    assert longer.shape == (3, 9)
    assert torch.equal(longer[:, :5], text[:, :5])
    for place in range(5, 9):
        assert torch.equal(model(longer[:, :place])[:, -1].argmax(-1), longer[:, place])


def test_norms_of_queries_and_keys_bound_the_scores(text):
    for qk_norm in (False, True):
        model = decoder.decoder(VOCABULARY, qk_norm=qk_norm)
        with torch.no_grad():
            for block in model.blocks:
                block.attention.query_key_value.weight *= 30
        model(text)
        assert (model.largest_score <= 4 + 1e-4) == qk_norm  # the root of a head's width


def test_changes_are_counted_against_fp32(model, text):
    inputs, targets = text[:, :-1], text[:, 1:]
    assert decoder.changes(model, inputs, targets, decoder.FP32).largest == 0
    how = all_in(torch.bfloat16)
    found = decoder.changes(model, inputs, targets, how)
    exact, rounded = (decoder.log_probabilities(model, inputs, targets, each) for each in (decoder.FP32, how))
    assert torch.equal(found.off, (rounded - exact).abs())
    assert found.typical == (rounded - exact).abs().median()
    model(inputs)
    usual = model.chosen
    swapped = Arithmetic(routes=[chosen.roll(1) for chosen in usual])
    expected = sum(int((chosen != chosen.roll(1)).sum()) for chosen in usual)
    assert decoder.changes(model, inputs, targets, swapped).other_experts == expected


def test_weights_of_blocks_are_made_anew_in_a_copy(model):
    before = {name: each.clone() for name, each in model.named_parameters()}
    made = dict(decoder.with_block_weights(model, torch.zeros_like).named_parameters())
    zeros = {name for name, each in made.items() if not each.any()}
    assert all(torch.equal(before[name], each) for name, each in model.named_parameters())
    assert zeros == {
        f"blocks.{block}.{name}"
        for block in (0, 1)
        for name in ("attention.query_key_value.weight", "attention.out.weight", "experts.up", "experts.down")
    }


def test_who_knows_nothing_is_as_unsure_as_among_all_characters(model, text):
    with torch.no_grad():
        model.head.weight.zero_()
    assert decoder.perplexity(model, text, text) == pytest.approx(VOCABULARY, rel=1e-5)

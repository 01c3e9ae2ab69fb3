"""What decoding reads, against caches that are really filled, weights that are really stored, and by hand."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations, product
from types import SimpleNamespace

import pytest
import torch
from torch import nn

from amp_lessons.autocast import fake_tensors
from amp_lessons.formats import by_groups
from amp_lessons.measure import GPUS, Decoding, NoDecoderError, Part, decoding_of
from amp_lessons.measure.decoding import gpus_table, stored_table, what_is_counted

pytestmark = pytest.mark.slow

H100 = GPUS["H100 SXM"]


class Writer(nn.Module):
    """A decoder of one's own: grouped queries, keys and values in a list of tensors."""

    def __init__(self, layers=3, width=32, heads=4, kv_heads=2, vocabulary=50):
        super().__init__()
        self.config = SimpleNamespace(num_attention_heads=heads)
        self.kv_heads, self.head_width = kv_heads, width // heads
        self.embedding = nn.Embedding(vocabulary, width)
        kv = 2 * kv_heads * self.head_width
        self.layers = nn.ModuleList(nn.Linear(width, kv, bias=False) for _ in range(layers))
        self.head = nn.Linear(width, vocabulary, bias=False)

    def get_output_embeddings(self):
        return self.head

    def forward(self, input_ids, past=None, use_cache=False):
        hidden, cache = self.embedding(input_ids), []
        for place, layer in enumerate(self.layers):
            made = layer(hidden).unflatten(-1, (2, self.kv_heads, self.head_width)).permute(2, 0, 3, 1, 4)
            if past is not None:
                made = torch.cat([torch.stack(past[place]), made], -2)
            cache.append((made[0], made[1]))
        return SimpleNamespace(logits=self.head(hidden), past_key_values=cache if use_cache else None)


def test_the_cache_is_what_a_decoder_really_fills_token_by_token():
    model, past, tokens = Writer(), None, 20
    for _ in range(tokens):
        past = model(torch.zeros(1, 1, dtype=torch.long), past, use_cache=True).past_key_values
    filled = sum(each.numel() for layer in past for each in layer)
    found = decoding_of(model, tokens)
    assert found.cached == filled == tokens * found.cached_per_token
    assert found.queries == 2
    model.config.max_position_embeddings = 6  # of a model that knows few no more are asked
    found = decoding_of(model)
    assert (found.context, found.cached) == (6, 6 * found.cached_per_token)


SIZES = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4}
CONFIGS = {
    "LlamaForCausalLM": ("LlamaConfig", {**SIZES, "num_key_value_heads": 2}),
    "GPT2LMHeadModel": ("GPT2Config", {"n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 64}),
    "Gemma3ForCausalLM": (
        "Gemma3TextConfig",
        {**SIZES, "num_key_value_heads": 1, "head_dim": 8, "sliding_window": 6},
    ),
    "MixtralForCausalLM": ("MixtralConfig", {**SIZES, "num_key_value_heads": 2, "num_local_experts": 4}),
    "MambaForCausalLM": ("MambaConfig", {**SIZES, "state_size": 4}),
}


def small(name):
    transformers = pytest.importorskip("transformers")
    config, options = CONFIGS[name]
    ids = {"bos_token_id": 0, "eos_token_id": 0, "pad_token_id": 0}
    return getattr(transformers, name)(getattr(transformers, config)(vocab_size=60, **options, **ids))


@pytest.mark.parametrize("name", CONFIGS)
@torch.no_grad()
def test_the_cache_of_published_architectures_is_what_real_tokens_fill(name):
    model, tokens = small(name).eval(), 16
    ids = torch.zeros(1, tokens, dtype=torch.long)
    output = model(ids, use_cache=True)
    layers = (output.get("past_key_values") or output.get("cache_params")).layers
    found = decoding_of(model, tokens)
    filled = 0
    for layer in layers:
        for each in vars(layer).values():
            held = each.values() if isinstance(each, dict) else [each]  # Mamba's states are in a dict
            filled += sum(one.numel() for one in held if torch.is_tensor(one) and one.is_floating_point())
    assert found.cached == filled
    if name == "MambaForCausalLM":
        assert found.cached_per_token == 0
    if name == "Gemma3ForCausalLM":  # its windows are full
        assert found.cached < tokens * 2 * 2 * 8


def llama(width, inner, layers, heads):
    transformers = pytest.importorskip("transformers")
    options = {"num_key_value_heads": 8, "max_position_embeddings": 8192, "vocab_size": 128_256}
    sizes = dict(zip(SIZES, (width, inner, layers, heads), strict=True))
    with fake_tensors():
        return transformers.LlamaForCausalLM(transformers.LlamaConfig(**sizes, **options))


def test_llama_3_8b_is_what_one_reckons_by_hand():
    # 32 layers, keys and values, 8 heads, 128 wide, 2 bytes: 131,072 bytes a token, 512 MiB for 4,096 tokens.
    # A layer: 2 * 4096^2 for queries and output, 2 * 4096 * 1024 for keys and values, 3 * 4096 * 14336 for
    # the rest; head and embedding 4096 * 128256 each; 65 norms of 4096: 8,030,261,248 in all.
    found = decoding_of(llama(4096, 14336, 32, 32), 4096)
    served = found.on(H100)
    assert served.cache_bytes == 4096 * 131_072 == 512 * 2**20
    assert found.cached_per_token * 2 == 131_072
    assert served.weight_bytes == 2 * 8_030_261_248
    # A token reads (8,030,261,248 - 525,336,576) * 2 bytes of weights and 537 MB of cache: 15.55 GB, at
    # 3.35 TB/s.
    assert served.tokens_per_s() == pytest.approx(3350 / 15.547, rel=1e-3)
    # 79.11 - 0.5 GiB, less 14.96 GiB of weights, in halves of a GiB
    assert served.largest_batch == 127
    # 6.98e9 weights in blocks at 4.5 bits and 1.051e9 numbers in 16
    assert found.on(H100, bits=4).weight_bytes == pytest.approx(6.979e9 * 4.5 / 8 + 2 * 1.0509e9, rel=1e-3)
    assert found.queries == 4


@pytest.mark.thorough
def test_llama_3_70b_does_not_fit_in_16_bits_and_does_in_4():
    # 80 layers * 2 * 8 heads * 128 * 2 bytes = 327,680 bytes a token; 70,553,706,496 weights are 141 GB.
    model = llama(8192, 28672, 80, 64)
    found = decoding_of(model, 16)
    assert found.cached_per_token * 2 == 327_680
    served = found.on(H100)
    assert served.weight_bytes == 2 * 70_553_706_496
    assert served.largest_batch == 0
    assert served.tokens_per_s() == pytest.approx(24, abs=0.3)  # as the lesson says, were it to fit
    assert found.on(H100, bits=4).largest_batch > 0
    assert "none" in str(gpus_table(found))


@pytest.mark.parametrize(("bits", "group"), [(8, 32), (4, 32), (4, None), (3, 12)])
def test_weights_in_few_bits_take_what_their_codes_and_scales_take(bits, group):
    model, stored, others = Writer(), 0.0, 0
    for name, weight in model.named_parameters():
        if name.startswith("layers"):
            grouped = by_groups(weight.detach(), bits, group)
            stored += grouped.codes.numel() * bits / 8 + grouped.scales.nbytes
        else:
            others += 2 * weight.numel()
    served = decoding_of(model, 1000).on(H100, bits=bits, group=group)
    assert served.weight_bytes == round(stored + others)
    taken = served.weight_bytes + served.largest_batch * served.cache_bytes
    assert taken <= H100.usable_bytes < taken + served.cache_bytes  # a batch fits as long as all of that does


@pytest.mark.parametrize("gpu", GPUS)
@pytest.mark.parametrize("bits", [16, 8, 4])
def test_products_bound_from_the_batch_whose_arithmetic_takes_as_long_as_reading(gpu, bits):
    sheet, count = GPUS[gpu], 10**9
    found = Decoding(1, (Part({4096: count}, in_blocks=True),), 0, 2, 2)
    nbytes = {16: 2.0, 8: 8.5 / 8, 4: 4.5 / 8}[bits] * count
    rate = sheet.flop_per_s["bf16" if "bf16" in sheet.flop_per_s else "fp16"]
    expected = next(n for n in range(1, 1000) if 2 * n * count / rate >= nbytes / sheet.bytes_per_s)
    served = found.on(sheet, bits=bits)
    assert served.compute_bound_from == expected
    assert served.tokens_per_s(expected) < expected * served.tokens_per_s(1)
    assert served.tokens_per_s(expected - 1) == pytest.approx(
        (expected - 1) * served.tokens_per_s(1), rel=1e-3
    )


def test_experts_are_read_as_far_as_some_sequence_is_sent_to_them():
    experts, chosen, batch = 4, 2, 3
    ways = list(product(combinations(range(experts), chosen), repeat=batch))
    used = sum(len(set().union(*way)) for way in ways) / len(ways) / experts
    assert Part({8: 8}, True, chosen / experts).share_of(batch) == pytest.approx(used)


def numbers_of(found):
    return found.looked_up + sum(sum(part.numbers.values()) for part in found.parts)


def test_experts_are_told_from_what_every_token_uses():
    model = small("MixtralForCausalLM")
    found = decoding_of(model, 16)
    (experts,) = [part for part in found.parts if part.share < 1]
    assert experts.share == 2 / 4
    assert sum(experts.numbers.values()) == 2 * 4 * 3 * 32 * 48  # layers, experts, matrices, their sides
    assert numbers_of(found) == sum(each.numel() for each in model.parameters())
    assert "experts" in what_is_counted(found)
    assert "experts" not in what_is_counted(replace(found, parts=()))


def test_a_shared_head_is_read_and_counts_once():
    model = small("GPT2LMHeadModel")
    found = decoding_of(model, 16)
    assert model.lm_head.weight is model.transformer.wte.weight
    assert found.looked_up == model.transformer.wpe.weight.numel()
    assert numbers_of(found) == sum(each.numel() for each in model.parameters())


def test_the_model_is_left_as_it_was():
    with fake_tensors():
        model = Writer()
    model.layers[1].eval()
    decoding_of(model)
    assert [each.training for each in model.layers] == [True, False, True]
    assert model.training


class Silent(Writer):
    def forward(self, input_ids, use_cache=False):
        return super().forward(input_ids)


def test_what_writes_nothing_gets_a_sentence():
    transformers = pytest.importorskip("transformers")
    with fake_tensors():
        encoder = transformers.BertForMaskedLM(transformers.BertConfig(num_hidden_layers=1))
        with_decoder = transformers.T5ForConditionalGeneration(transformers.T5Config())
    for model, words in (
        (nn.Linear(4, 4), "is not called as model"),
        (Silent(), "returned no past_key_values or cache_params"),
        (encoder, "writes no text"),
        (with_decoder, "an encoder with a decoder"),
    ):
        with pytest.raises(NoDecoderError, match=words):
            decoding_of(model)


def test_arguments_that_make_no_sense_are_refused():
    found = decoding_of(small("GPT2LMHeadModel"), 16)
    with pytest.raises(ValueError, match="from 2 to 8, or 16, not 12"):
        found.on(H100, bits=12)
    with pytest.raises(TypeError, match="a data sheet"):
        found.on("H100 SXM")
    with pytest.raises(ValueError, match="knows 64 positions"):
        decoding_of(small("GPT2LMHeadModel"), 65)


def test_tables_have_a_row_for_each_way_of_storing_and_each_gpu():
    found = decoding_of(Writer(), 8)
    stored, gpus = stored_table(found, H100), gpus_table(found)
    weights, caches = (tuple(row[name] for row in stored.records) for name in ("weights", "cache"))
    assert weights == ("16 bits", "16 bits", "INT8 by 32", "INT4 by 32", "INT4 by 32")
    assert caches == ("16 bits", "fp8", "16 bits", "16 bits", "fp8")
    assert [row["GPU"] for row in gpus.records] == list(GPUS)
    per_token = 3 * 2 * 2 * 8 * 2  # layers, keys and values, heads, their width, bytes
    assert stored.records[0]["cache a token"] == f"{per_token} bytes"
    assert stored.records[1]["cache a token"] == f"{per_token // 2} bytes"

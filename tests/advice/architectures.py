"""Architectures that nobody here wrote, small and with random weights, each with a batch and a loss."""

from __future__ import annotations

import functools

import torch

from tests.measure import architectures

VOCABULARY = 120
SIZES = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 1, "num_attention_heads": 2}
HEADS_APART = SIZES | {"vocab_size": VOCABULARY, "num_attention_heads": 4, "num_key_value_heads": 2}


def _tokens(batch=3, length=12):
    return torch.randint(2, VOCABULARY, (batch, length))


def _of_text(model, *shape):
    """Return a model that predicts each next token of the text that it is given, and such a text."""
    ids = _tokens(*shape)
    return model, {"input_ids": ids, "labels": ids}


def _with_loss(make):
    """Return the model of ``tests.measure.architectures``, and its inputs by name, labels among them."""

    @functools.wraps(make)
    def model_and_batch(t):
        case = make()
        return case.model, {case.model.main_input_name: case.args[0], **case.kwargs}

    return model_and_batch


bert, gpt2, vit = map(_with_loss, (architectures.bert, architectures.gpt2, architectures.vit))


def t5(t):
    sizes = {"d_model": 32, "d_kv": 16, "d_ff": 64, "num_layers": 2, "num_heads": 2}
    config = t.T5Config(vocab_size=VOCABULARY, **sizes, decoder_start_token_id=0)
    return _of_text(t.T5ForConditionalGeneration(config))


def llama(t):
    return _of_text(t.LlamaForCausalLM(t.LlamaConfig(**HEADS_APART | {"num_hidden_layers": 2})))


def mixtral(t):
    return _of_text(t.MixtralForCausalLM(t.MixtralConfig(**HEADS_APART, num_local_experts=4)))


def mamba(t):
    config = t.MambaConfig(vocab_size=VOCABULARY, hidden_size=16, state_size=4, num_hidden_layers=1)
    return _of_text(t.MambaForCausalLM(config), 2, 6)


def clip(t):
    text = {"vocab_size": VOCABULARY, "eos_token_id": 1, **SIZES}
    vision = {"image_size": 16, "patch_size": 8, **SIZES}
    model = t.CLIPModel(t.CLIPConfig(text_config=text, vision_config=vision, projection_dim=16))
    return model, {"input_ids": _tokens(), "pixel_values": torch.randn(3, 3, 16, 16), "return_loss": True}


def whisper(t):
    sizes = {"layers": 1, "attention_heads": 2, "ffn_dim": 64}
    coders = {f"{coder}_{name}": size for coder in ("encoder", "decoder") for name, size in sizes.items()}
    ids = {"decoder_start_token_id": 1, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 1}
    config = t.WhisperConfig(
        vocab_size=VOCABULARY,
        d_model=32,
        max_source_positions=50,
        num_mel_bins=8,
        **coders,
        **ids,
        suppress_tokens=None,
        begin_suppress_tokens=None,
    )
    batch = {"input_features": torch.randn(2, 8, 100), "labels": _tokens(2, 6)}
    return t.WhisperForConditionalGeneration(config), batch


def wav2vec2(t):
    convolutions = {"conv_dim": (16, 16), "conv_kernel": (10, 3), "conv_stride": (5, 2)}
    positions = {"num_conv_pos_embeddings": 8, "num_conv_pos_embedding_groups": 2}
    config = t.Wav2Vec2Config(**SIZES, **convolutions, **positions, vocab_size=20, mask_time_length=2)
    batch = {"input_values": torch.randn(2, 800), "labels": torch.randint(1, 20, (2, 5))}
    return t.Wav2Vec2ForCTC(config), batch


def convnext(t):
    config = t.ConvNextConfig(hidden_sizes=[8, 16, 32, 64], depths=[1, 1, 1, 1], num_labels=3)
    batch = {"pixel_values": torch.randn(3, 3, 32, 32), "labels": torch.tensor([0, 1, 2])}
    return t.ConvNextForImageClassification(config), batch


def resnet(t):
    sizes = {"embedding_size": 8, "hidden_sizes": [8, 16], "depths": [1, 1], "layer_type": "basic"}
    model = t.ResNetForImageClassification(t.ResNetConfig(**sizes, num_labels=3))
    return model, (torch.randn(4, 3, 32, 32), torch.tensor([0, 1, 2, 0])), _logits_loss


def _logits_loss(output, target):
    return torch.nn.functional.cross_entropy(output.logits, target)


ALL = (bert, gpt2, t5, vit, llama, mamba, clip, whisper, wav2vec2, convnext, resnet, mixtral)

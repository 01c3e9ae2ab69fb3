"""Architectures that nobody here wrote, small and with random weights, each with a batch and a loss."""

from __future__ import annotations

import functools

import torch

from tests.measure import architectures

VOCABULARY = 120


def _tokens(batch=3, length=12):
    return torch.randint(2, VOCABULARY, (batch, length))


def _with_loss(make):
    """Return the model of ``tests.measure.architectures``, and its inputs by name, labels among them."""

    @functools.wraps(make)
    def model_and_batch(t):
        case = make()
        return case.model, {case.model.main_input_name: case.args[0], **case.kwargs}

    return model_and_batch


bert, gpt2, vit = map(_with_loss, (architectures.bert, architectures.gpt2, architectures.vit))


def t5(t):
    config = t.T5Config(
        vocab_size=VOCABULARY,
        d_model=32,
        d_kv=16,
        d_ff=64,
        num_layers=2,
        num_heads=2,
        decoder_start_token_id=0,
    )
    ids = _tokens()
    return t.T5ForConditionalGeneration(config), {"input_ids": ids, "labels": ids}


def llama(t):
    config = t.LlamaConfig(
        vocab_size=VOCABULARY,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
    )
    ids = _tokens()
    return t.LlamaForCausalLM(config), {"input_ids": ids, "labels": ids}


def mamba(t):
    config = t.MambaConfig(vocab_size=VOCABULARY, hidden_size=16, state_size=4, num_hidden_layers=1)
    ids = _tokens(2, 6)
    return t.MambaForCausalLM(config), {"input_ids": ids, "labels": ids}


def clip(t):
    text = {
        "vocab_size": VOCABULARY,
        "hidden_size": 32,
        "intermediate_size": 64,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "eos_token_id": 1,
    }
    vision = {
        "hidden_size": 32,
        "intermediate_size": 64,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "image_size": 16,
        "patch_size": 8,
    }
    model = t.CLIPModel(t.CLIPConfig(text_config=text, vision_config=vision, projection_dim=16))
    return model, {"input_ids": _tokens(), "pixel_values": torch.randn(3, 3, 16, 16), "return_loss": True}


def whisper(t):
    config = t.WhisperConfig(
        vocab_size=VOCABULARY,
        d_model=32,
        encoder_layers=1,
        decoder_layers=1,
        encoder_attention_heads=2,
        decoder_attention_heads=2,
        encoder_ffn_dim=64,
        decoder_ffn_dim=64,
        max_source_positions=50,
        num_mel_bins=8,
        decoder_start_token_id=1,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=1,
        suppress_tokens=None,
        begin_suppress_tokens=None,
    )
    return t.WhisperForConditionalGeneration(config), {
        "input_features": torch.randn(2, 8, 100),
        "labels": _tokens(2, 6),
    }


def wav2vec2(t):
    config = t.Wav2Vec2Config(
        hidden_size=32,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=64,
        conv_dim=(16, 16),
        conv_kernel=(10, 3),
        conv_stride=(5, 2),
        num_conv_pos_embeddings=8,
        num_conv_pos_embedding_groups=2,
        vocab_size=20,
        mask_time_length=2,
    )
    return t.Wav2Vec2ForCTC(config), {
        "input_values": torch.randn(2, 800),
        "labels": torch.randint(1, 20, (2, 5)),
    }


def convnext(t):
    config = t.ConvNextConfig(hidden_sizes=[8, 16, 32, 64], depths=[1, 1, 1, 1], num_labels=3)
    return t.ConvNextForImageClassification(config), {
        "pixel_values": torch.randn(3, 3, 32, 32),
        "labels": torch.tensor([0, 1, 2]),
    }


def resnet(t):
    config = t.ResNetConfig(
        embedding_size=8, hidden_sizes=[8, 16], depths=[1, 1], layer_type="basic", num_labels=3
    )
    return (
        t.ResNetForImageClassification(config),
        (torch.randn(4, 3, 32, 32), torch.tensor([0, 1, 2, 0])),
        _logits_loss,
    )


def mixtral(t):
    config = t.MixtralConfig(
        vocab_size=VOCABULARY,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=1,
        num_attention_heads=4,
        num_key_value_heads=2,
        num_local_experts=4,
    )
    ids = _tokens()
    return t.MixtralForCausalLM(config), {"input_ids": ids, "labels": ids}


def _logits_loss(output, target):
    return torch.nn.functional.cross_entropy(output.logits, target)


ALL = (bert, gpt2, t5, vit, llama, mamba, clip, whisper, wav2vec2, convnext, resnet, mixtral)

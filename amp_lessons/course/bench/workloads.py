"""The models that are timed and predicted: known architectures, random weights, random data.

They are built from configurations of the ``transformers`` library; nothing is downloaded.
"""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn

INSTALL = "python -m pip install 'amp-lessons[models]'"


class MissingExtraError(ImportError):
    """The library that the models come from is not installed; the message says how to install it."""


@dataclass(frozen=True)
class Claim:
    """What a source says mixed precision gains: ``speedup`` times as fast, that share of the memory saved."""

    gpu: str
    speedup: float
    memory_saving: float


@dataclass(frozen=True)
class Size:
    """One size of a model: options of its configuration, and the batch that is trained on.

    ``length`` is the number of tokens of a sequence, or the pixels of an image's side.
    """

    batch: int
    length: int
    config: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Workload:
    """A model that can be trained on random data; ``sizes`` holds one ``Size`` per preset.

    ``items`` says what a batch consists of. ``claim`` is what a source says of it, None where none does.
    """

    name: str
    model_class: str
    config_class: str
    make_batch: Callable[[nn.Module, int, int], dict[str, Any]]
    sizes: Mapping[str, Size]
    items: str
    claim: Claim | None = None

    def build(self, preset: str = "full") -> nn.Module:
        """Build the model in training mode, with random weights, on PyTorch's default device.

        Inside ``autocast.fake_tensors()`` it takes no memory. Raises ``MissingExtraError`` without
        the library.
        """
        library = require_transformers()
        config = getattr(library, self.config_class)(**self.size(preset).config)
        return getattr(library, self.model_class)(config).train()

    def batch(self, model: nn.Module, batch: int, preset: str = "full") -> dict[str, Any]:
        """Make random named inputs for ``batch`` items; with them, the model returns its loss."""
        return self.make_batch(model, batch, self.size(preset).length)

    def size(self, preset: str) -> Size:
        """Return the size called ``preset``. Raises ``ValueError`` for another, with those there are."""
        if preset not in self.sizes:
            raise ValueError(f"{self.name} has no size {preset!r}; there are {', '.join(self.sizes)}")
        return self.sizes[preset]


def require_transformers() -> Any:
    """Import ``transformers``, or raise ``MissingExtraError``, which says in words what to install."""
    if importlib.util.find_spec("transformers") is None:
        raise MissingExtraError(f"The models come from the library transformers. Install it: {INSTALL}")
    library = importlib.import_module("transformers")
    library.logging.set_verbosity_error()  # it remarks on options of configurations that no one uses here
    return library


def _images(model: nn.Module, batch: int, side: int) -> dict[str, Any]:
    labels = torch.randint(0, int(_config(model).num_labels), (batch,))
    return {"pixel_values": torch.randn(batch, 3, side, side), "labels": labels}


def _text(model: nn.Module, batch: int, tokens: int) -> dict[str, Any]:
    ids = torch.randint(0, int(_config(model).vocab_size), (batch, tokens))
    return {"input_ids": ids, "labels": ids}


def _sentence_pairs(model: nn.Module, batch: int, tokens: int) -> dict[str, Any]:
    return {**_text(model, batch, tokens), "next_sentence_label": torch.randint(0, 2, (batch,))}


def _config(model: nn.Module) -> Any:
    return model.config


_GPT2 = {"bos_token_id": 0, "eos_token_id": 0, "use_cache": False, "loss_type": "ForCausalLM"}
_LARGE_BERT = {
    "hidden_size": 1024,
    "num_hidden_layers": 24,
    "num_attention_heads": 16,
    "intermediate_size": 4096,
}

# Shrunk until a CPU takes tens of milliseconds for a step in fp32, and not much more than a second in fp16.
_SMALL_GPT2 = {"n_embd": 256, "n_layer": 4, "n_head": 4, "vocab_size": 4000, **_GPT2}
_SMALL_BERT = {
    "hidden_size": 256,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "intermediate_size": 1024,
    "vocab_size": 4000,
}
_SMALL_RESNET = {"embedding_size": 32, "hidden_sizes": [64, 128, 256], "depths": [1, 2, 1], "num_labels": 10}
_SMALL_EFFICIENTNET = {
    "width_coefficient": 0.5,
    "depth_coefficient": 0.5,
    "hidden_dim": 640,
    "image_size": 64,
    "num_labels": 10,
}
_SMALL_VIT = {
    "hidden_size": 192,
    "num_hidden_layers": 4,
    "num_attention_heads": 3,
    "intermediate_size": 768,
    "image_size": 64,
    "num_labels": 10,
}


def _gpt2(name: str, layers: int, width: int, heads: int) -> Workload:
    config = {"n_layer": layers, "n_embd": width, "n_head": heads, **_GPT2}
    return Workload(
        name, "GPT2LMHeadModel", "GPT2Config", _text, {"full": Size(8, 1024, config)}, "sequences"
    )


WORKLOADS: dict[str, Workload] = {
    workload.name: workload
    for workload in (
        Workload(
            "ResNet-50",
            "ResNetForImageClassification",
            "ResNetConfig",
            _images,
            {"full": Size(64, 224, {"num_labels": 1000}), "small": Size(8, 64, _SMALL_RESNET)},
            "images",
            Claim("RTX 3090", 1.6, 0.40),
        ),
        Workload(
            "BERT-Large",
            "BertForPreTraining",
            "BertConfig",
            _sentence_pairs,
            {"full": Size(16, 512, _LARGE_BERT), "small": Size(2, 64, _SMALL_BERT)},
            "sequences",
            Claim("A100", 1.8, 0.45),
        ),
        Workload(
            "GPT-2",
            "GPT2LMHeadModel",
            "GPT2Config",
            _text,
            {"full": Size(8, 1024, _GPT2), "small": Size(2, 64, _SMALL_GPT2)},
            "sequences",
            Claim("V100", 1.4, 0.35),
        ),
        Workload(
            "EfficientNet-B7",
            "EfficientNetForImageClassification",
            "EfficientNetConfig",
            _images,
            {"full": Size(8, 600, {"num_labels": 1000}), "small": Size(4, 64, _SMALL_EFFICIENTNET)},
            "images",
            Claim("RTX 4090", 1.7, 0.42),
        ),
        _gpt2("GPT-2 medium", 24, 1024, 16),
        _gpt2("GPT-2 large", 36, 1280, 20),
        _gpt2("GPT-2 XL", 48, 1600, 25),
        Workload(
            "BERT-Base",
            "BertForPreTraining",
            "BertConfig",
            _sentence_pairs,
            {"full": Size(32, 512)},
            "sequences",
        ),
        Workload(
            "ViT-Base/16",
            "ViTForImageClassification",
            "ViTConfig",
            _images,
            {"full": Size(64, 224, {"num_labels": 1000}), "small": Size(8, 64, _SMALL_VIT)},
            "images",
        ),
    )
}
"""By name. All can be asked about in the memory calculator; the full sizes are those of the published models.

One with a small size is benched too, and one with a claim is confronted with it: nothing else lists them.
"""

_LLAMA_3 = {
    "vocab_size": 128_256,
    "num_key_value_heads": 8,
    "max_position_embeddings": 8192,
    "rope_parameters": {"rope_type": "default", "rope_theta": 500_000.0},
}


def _llama_3(name: str, width: int, inner: int, layers: int, heads: int) -> Workload:
    sizes = {
        "hidden_size": width,
        "intermediate_size": inner,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
    }
    full = Size(1, 8192, {**_LLAMA_3, **sizes})
    return Workload(name, "LlamaForCausalLM", "LlamaConfig", _text, {"full": full}, "sequences")


# Llama 3's sizes are those of table 3 in https://arxiv.org/abs/2407.21783
SERVED: dict[str, Workload] = {
    workload.name: workload
    for workload in (
        _llama_3("Llama 3 8B", 4096, 14_336, 32, 32),
        _llama_3("Llama 3 70B", 8192, 28_672, 80, 64),
        *(each for each in WORKLOADS.values() if each.model_class == "GPT2LMHeadModel"),
    )
}
"""The language models that the calculator can be asked about as a server is: those that write text."""

SOURCE_MODELS = {name: workload for name, workload in WORKLOADS.items() if workload.claim}
"""The models of the source's table, with what it claims for each on which GPU."""


def benched() -> tuple[str, ...]:
    """Return the names of the models that ``amp-lessons bench`` measures: those that have a small size."""
    return tuple(name for name, workload in WORKLOADS.items() if "small" in workload.sizes)

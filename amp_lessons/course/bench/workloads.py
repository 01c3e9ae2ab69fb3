"""The models that are timed and predicted: known architectures, random weights, random data.

``workloads.yaml`` beside this file lists them. They are built from configurations of the ``transformers``
library; nothing is downloaded.
"""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib import resources
from typing import Any

import torch
import yaml
from torch import nn

from amp_lessons._base.entries import LOADER

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


def _images(model: Any, batch: int, side: int) -> dict[str, Any]:
    labels = torch.randint(0, int(model.config.num_labels), (batch,))
    return {"pixel_values": torch.randn(batch, 3, side, side), "labels": labels}


def _text(model: Any, batch: int, tokens: int) -> dict[str, Any]:
    ids = torch.randint(0, int(model.config.vocab_size), (batch, tokens))
    return {"input_ids": ids, "labels": ids}


def _sentence_pairs(model: Any, batch: int, tokens: int) -> dict[str, Any]:
    return {**_text(model, batch, tokens), "next_sentence_label": torch.randint(0, 2, (batch,))}


_BATCHES = {
    "images": (_images, "images"),
    "text": (_text, "sequences"),
    "sentence pairs": (_sentence_pairs, "sequences"),
}


def _workload(said: dict[str, Any]) -> Workload:
    """Return what an entry of the file says."""
    make_batch, items = _BATCHES[said["batches"]]
    sizes: dict[str, Size] = {preset: Size(**said[preset]) for preset in ("full", "small") if preset in said}
    claim = Claim(**said["claim"]) if "claim" in said else None
    return Workload(said["name"], said["model"], said["config"], make_batch, sizes, items, claim)


_ENTRIES = yaml.load(resources.files(__package__).joinpath("workloads.yaml").read_text("utf-8"), LOADER)

WORKLOADS = {each["name"]: _workload(each) for each in _ENTRIES if each.get("trained", True)}
"""By name. All can be asked about in the memory calculator; the full sizes are those of the published models.

One with a small size is benched too, and one with a claim is confronted with it: nothing else lists them.
"""

SERVED = {each["name"]: _workload(each) for each in _ENTRIES if not each.get("trained", True)} | {
    name: each for name, each in WORKLOADS.items() if each.model_class == "GPT2LMHeadModel"
}
"""The language models that the calculator can be asked about as a server is: those that write text."""

SOURCE_MODELS = {name: workload for name, workload in WORKLOADS.items() if workload.claim}
"""The models of the source's table, with what it claims for each on which GPU."""


def benched() -> tuple[str, ...]:
    """Return the names of the models that ``amp-lessons bench`` measures: those that have a small size."""
    return tuple(name for name, workload in WORKLOADS.items() if "small" in workload.sizes)

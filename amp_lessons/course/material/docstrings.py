"""Real English to classify: the docstrings of Python's own standard library, labelled by where they stand.

They come with every Python (PSF License), so nothing is downloaded. They differ a little between versions.
"""

from __future__ import annotations

import ast
import random
import sysconfig
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import torch
from torch import Tensor

# Name and place of eight with at least 150 docstrings in each of Python 3.10 to 3.13
SOURCES = {
    "asyncio": "asyncio",
    "decimal": "_pydecimal.py",
    "email": "email",
    "importlib": "importlib",
    "logging": "logging",
    "multiprocessing": "multiprocessing",
    "unittest": "unittest",
    "xml": "xml",
}
NAMES = tuple(SOURCES)
PER_SOURCE = 150
FOR_TRAINING = 112
FEWEST_WORDS = 5


@dataclass(frozen=True)
class LabelledTexts:
    """Texts, and for each the index of its source in ``NAMES`` (int64)."""

    texts: list[str]
    labels: Tensor

    def __len__(self) -> int:
        return len(self.texts)


@dataclass(frozen=True)
class Docstrings:
    """The docstrings, split at random but always alike."""

    train: LabelledTexts
    test: LabelledTexts


@cache
def docstrings() -> Docstrings:
    """Return 896 docstrings to train on and 304 to test with, an equal number of each source.

    Raises RuntimeError where an operating system ships Python without its library's sources.
    """
    found = [_shuffled(place)[:PER_SOURCE] for place in SOURCES.values()]
    for source, texts in zip(SOURCES, found, strict=True):
        if len(texts) < PER_SOURCE:
            raise RuntimeError(f"this Python comes without the source code of {source}, or with little of it")
    return Docstrings(
        train=_labelled([texts[:FOR_TRAINING] for texts in found]),
        test=_labelled([texts[FOR_TRAINING:] for texts in found]),
    )


def _labelled(by_source: list[list[str]]) -> LabelledTexts:
    labels = [label for label, texts in enumerate(by_source) for _ in texts]
    return LabelledTexts([text for texts in by_source for text in texts], torch.tensor(labels))


def _shuffled(source: str) -> list[str]:
    texts = sorted({text for file in _files(source) for text in _docstrings_in(file)})
    random.Random(0).shuffle(texts)
    return texts


def _files(source: str) -> list[Path]:
    place = Path(sysconfig.get_paths()["stdlib"]) / source
    return [place] if place.is_file() else sorted(p for p in place.rglob("*.py") if "test" not in p.parts)


def _docstrings_in(file: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(file.read_text("utf-8"))):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            words = (ast.get_docstring(node) or "").split()
            if len(words) >= FEWEST_WORDS:
                yield " ".join(words)

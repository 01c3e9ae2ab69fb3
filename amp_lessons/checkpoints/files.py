"""Checkpoints as they lie on disk: one file, shards with an index, or a folder as frameworks write it."""

from __future__ import annotations

import json
import pickle
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from amp_lessons.checkpoints.kinds import Checkpoint, read_checkpoint

# What transformers, diffusers and accelerate call them; an index says which tensor is in which file.
_INDICES = ("model.safetensors.index.json", "pytorch_model.bin.index.json")
_MODELS = ("model.safetensors", "pytorch_model.bin", "pytorch_model.safetensors", "model.pt", "model.pth")
_SCALER = "scaler.pt"


def load_checkpoint(path: str | Path, *, part: str = "") -> Checkpoint:
    """Load a checkpoint from a file or a folder, and say what it is, as ``read_checkpoint`` does.

    A file is safetensors by its suffix, else what ``torch.save`` wrote. A folder is one of transformers' or
    accelerate's: the model in one file or in shards, beside it perhaps the state of a scaler. ``part`` is as
    in ``read_checkpoint``. No code is run: a pickle that asks for more than tensors and plain containers is
    refused.

    Raises ``FileNotFoundError`` where there is nothing, ``ValueError`` for what is no checkpoint or is
    refused, ``ImportError`` for safetensors without that package.
    """
    place = Path(path)
    if not place.exists():
        raise FileNotFoundError(f"there is no checkpoint at {place}")
    return read_checkpoint(_folder(place) if place.is_dir() else _file(place), part=part)


def _file(file: Path) -> Mapping[str, Any]:
    if file.name.endswith(".index.json"):
        return _shards(file)
    if file.suffix == ".safetensors":
        return _safetensors(file)
    try:
        loaded = torch.load(file, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        raise ValueError(
            f"{file.name} was refused: it asks for more than tensors and plain containers, and a pickle can "
            f"run any code ({_first_line(error)}). If you trust who wrote it, load it with "
            "torch.load(..., weights_only=False) and give read_checkpoint its state dict"
        ) from error
    except Exception as error:  # of bytes that mean something else, its unpickler raises anything
        raise ValueError(f"{file.name} is no file of torch.save: {_first_line(error)}") from error
    if not isinstance(loaded, Mapping):
        raise ValueError(f"{file.name} holds {type(loaded).__name__}, and no dict as a checkpoint does")
    return loaded


def _safetensors(file: Path) -> Mapping[str, Any]:
    try:
        from safetensors import SafetensorError
        from safetensors.torch import load_file
    except ImportError as error:
        raise ImportError(
            "safetensors are read by the package safetensors: pip install safetensors"
        ) from error
    try:
        return load_file(file)
    except SafetensorError as error:
        raise ValueError(f"{file.name} is no file of safetensors: {_first_line(error)}") from error


def _shards(index: Path) -> dict[str, Any]:
    """Put the tensors of all shards together, and miss none that the index names."""
    try:
        places: dict[str, str] = json.loads(index.read_text("utf-8"))["weight_map"]
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{index.name} is no index of shards: it has no weight_map") from error
    if strange := [name for name in places.values() if Path(name).name != name]:
        raise ValueError(f"{index.name} names {strange[0]!r}, which is not in its own folder")
    found: dict[str, Any] = {}
    for name in sorted({*places.values()}):
        if not (index.parent / name).is_file():
            raise ValueError(f"the shard {name} is missing, of {len({*places.values()})}")
        found |= _file(index.parent / name)
    if missing := places.keys() - found.keys():
        raise ValueError(
            f"{index.name} names {min(missing)}, and {len(missing) - 1} more, that are in no shard"
        )
    return found


def _folder(folder: Path) -> Mapping[str, Any]:
    if (folder / ".metadata").is_file():
        raise ValueError(
            f"{folder.name} is a distributed checkpoint, one part per rank; make one file of it first: "
            "python -m torch.distributed.checkpoint.format_utils dcp_to_torch FOLDER FILE"
        )
    model = next((folder / name for name in (*_INDICES, *_MODELS) if (folder / name).is_file()), None)
    if model is None:
        raise ValueError(
            f"there is no model in {folder}; it is looked for as {', '.join((*_INDICES, *_MODELS))}"
        )
    scaler = folder / _SCALER
    state = _file(model)
    return {"model": state, "scaler": _file(scaler)} if scaler.is_file() else state


def _first_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:200]

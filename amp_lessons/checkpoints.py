"""Checkpoints of mixed precision training, old and new: what kind one is, and its weights in fp32.

``torch.amp`` and Apex at O1 keep the masters in the model; Apex's ``FP16_Optimizer`` wrote them beside the
optimizer's state; at O2 ``apex.amp`` kept them in the optimizer and wrote them nowhere, and ``model.half()``
before saving loses them too.
"""

from __future__ import annotations

import json
import pickle
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor

from amp_lessons._base.arguments import require
from amp_lessons.precisions import HALF_DTYPES, HALVES

Kind = Literal["fp32", "fp64", "torch.amp", "Apex O1", "Apex O2", "Apex FP16_Optimizer", "halved"]

_SCALER = {"scale", "growth_factor", "backoff_factor", "growth_interval", "_growth_tracker"}
_APEX_SCALER = {"loss_scale", "unskipped"}
_MODEL_KEYS = ("model", "state_dict", "model_state_dict", "net", "module", "params", "weights")
_APEX_KEYS = ("amp", "amp_scaling_state")  # Lightning wrote the second
# What wrappers put into names: torch.compile, FSDP, activation checkpointing.
_WRAPPERS = ("_orig_mod.", "_fsdp_wrapped_module.", "_checkpoint_wrapped_module.")
_FEW = 16  # different numbers, as zeros and ones: they fit 16 bits without having been rounded
_PARALLEL = "module."  # DataParallel and DDP, before every name
_QUANTIZED = (torch.int8, torch.uint8)


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint: its kind, and its weights.

    ``weights`` are those of the model in fp32, by name, for ``model.load_state_dict``. ``masters_kept`` is
    False where they only have the values of 16 bits, as ``sentence`` says. ``scaler`` is the state of a
    gradient scaler for ``torch.amp.GradScaler.load_state_dict``, None where there was none.
    """

    kind: Kind
    sentence: str
    weights: Mapping[str, Tensor]
    masters_kept: bool
    scaler: Mapping[str, Any] | None = None


def read_checkpoint(loaded: Mapping[str, Any], *, part: str = "") -> Checkpoint:
    """Say what a checkpoint is that ``torch.load`` has read, and get its weights in fp32.

    ``loaded`` is a model's state dict, or a dict that holds one under a usual name, perhaps with the
    optimizer's and the scaler's. What wrappers put into names (DDP, FSDP, ``torch.compile``) is taken out.
    ``part`` is the name of the submodule that is wanted, such as ``"model"`` of a LightningModule that holds
    it under that name; "" is all of it. Raises ``TypeError`` for what is no dict, ``ValueError`` where no
    weights are in it, where they are quantized, or where masters do not belong to them.
    """
    require(loaded, Mapping, "loaded", "a dict, as torch.load returns of a checkpoint")
    require(part, str, "part", 'the name of a submodule, such as "model"')
    weights = _part(_model_state(loaded), part)
    _require_values(weights)
    masters = list(_apex_masters(loaded))
    states = [each for each in loaded.values() if isinstance(each, Mapping)]
    apex, scaler = _apex_scale(loaded), next((each for each in states if each.keys() >= _SCALER), None)
    kind = _kind(weights, masters, apex, scaler)
    found = _with_masters(weights, masters) if masters else _single(weights)
    sentence = " ".join([_SENTENCES[kind], *_of_frameworks(loaded, part)])
    return Checkpoint(kind, sentence, found, kind not in ("halved", "Apex O2"), scaler or apex)


def _kind(weights: Mapping[str, Tensor], masters: Sequence[Tensor], apex: object, scaler: object) -> Kind:
    if masters:
        return "Apex FP16_Optimizer"
    if apex is not None:
        return "Apex O2" if _fits(torch.float16, weights) else "Apex O1"
    if any(tensor.dtype in HALF_DTYPES for tensor in weights.values()):
        return "halved"
    if any(_fits(dtype, weights) for dtype in HALVES.values()):
        return "halved"
    if any(tensor.dtype is torch.float64 for tensor in weights.values()):
        return "fp64"
    return "fp32" if scaler is None else "torch.amp"


def _fits(dtype: torch.dtype, weights: Mapping[str, Tensor]) -> bool:
    """Say whether all matrices hold numbers of 16 bits: they may have been cast to fp32 again, as by O2."""
    matrices = [each for each in weights.values() if each.is_floating_point() and each.dim() > 1]
    drawn = [each for each in matrices if each.flatten()[:1000].unique().numel() > _FEW]
    return bool(drawn) and all(torch.equal(each.to(dtype).to(each.dtype), each) for each in matrices)


_SENTENCES: dict[Kind, str] = {
    "fp32": "Weights in fp32 and no scaler: of a training in fp32 or under bf16 autocast, which are alike.",
    "fp64": "Weights in fp64, of a training without mixed precision; rounded to fp32 here.",
    "torch.amp": "Weights in fp32 beside the state of a GradScaler: of torch.amp, or torch.cuda.amp.",
    "Apex O1": (
        "Weights in fp32 beside the state of apex.amp: of O1, which is what autocast does now. Its loss "
        "scale goes on in a torch.amp.GradScaler."
    ),
    "Apex O2": (
        "The state of apex.amp beside weights that have the values of fp16: of O2, whose masters were in the "
        "optimizer and are in no file. Go on from these under autocast; what the rounding took away is lost."
    ),
    "Apex FP16_Optimizer": (
        "A model in 16 bits, and its masters in fp32 with Apex's FP16_Optimizer: these are the weights. Go "
        "on under autocast with a new optimizer: the old one's state belongs to the masters, by their order."
    ),
    "halved": (
        "Weights in 16 bits and no masters beside them: the model was halved before it was saved. What the "
        "rounding took away is lost; as fp32 weights they can be trained on from there."
    ),
}


def _model_state(loaded: Mapping[str, Any]) -> dict[str, Tensor]:
    """Return the state dict of the model, without what wrappers put into names."""
    places = [loaded, *(loaded[key] for key in _MODEL_KEYS if isinstance(loaded.get(key), Mapping))]
    for place in reversed(places):
        tensors = {name: each for name, each in place.items() if isinstance(each, Tensor)}
        if tensors and len(tensors) >= len(place) - 1 and not (place.keys() & _SCALER):
            return _without_wrappers(tensors)
    raise ValueError(
        f"there is no model's state dict in this checkpoint, which has {', '.join(map(str, loaded))[:200]}; "
        f"it is looked for under {', '.join(_MODEL_KEYS)}"
    )


def _without_wrappers(tensors: Mapping[Any, Tensor]) -> dict[str, Tensor]:
    """Take out what wrappers put into names; ``module.`` only where all begin with it: it is a name too."""
    names = list(map(str, tensors))
    for wrapper in _WRAPPERS:
        names = [name.replace(wrapper, "") for name in names]
    if all(name.startswith(_PARALLEL) for name in names):
        names = [name.removeprefix(_PARALLEL) for name in names]
    return dict(zip(names, tensors.values(), strict=True))


def _part(weights: dict[str, Tensor], part: str) -> dict[str, Tensor]:
    if not part:
        return weights
    start = f"{part}."
    found = {name.removeprefix(start): each for name, each in weights.items() if name.startswith(start)}
    if not found:
        tops = dict.fromkeys(name.split(".")[0] for name in weights)
        raise ValueError(f"no weight is in a part {part!r}; there are {', '.join(tops)[:200]}")
    return found


def _require_values(weights: Mapping[str, Tensor]) -> None:
    """Refuse tensors without values, and those whose values are no weights."""
    for name, tensor in weights.items():
        if tensor.is_meta:
            raise ValueError(
                f'{name} has no values, it is on the device "meta"; load with map_location="cpu"'
            )
        bits = tensor.is_floating_point() and tensor.dtype.itemsize == 1
        if bits or (name.endswith("weight") and tensor.dtype in _QUANTIZED and tensor.dim() > 1):
            raise ValueError(
                f"{name} is quantized, in {tensor.dtype}: it means something only with its scales, which the "
                "library knows that wrote it; let that one give the weights back in fp32"
            )


def _of_frameworks(loaded: Mapping[str, Any], part: str) -> Iterator[str]:
    """Say what is to be known of a framework's checkpoint."""
    if "pytorch-lightning_version" in loaded:
        named = "" if part else " Names begin with the attribute that holds the model; `part` picks one."
        yield f"Lightning {loaded['pytorch-lightning_version']} wrote it.{named}"
    if "ds_version" in loaded:
        yield "DeepSpeed wrote it: masters are in its files *_optim_states.pt; zero_to_fp32.py gets them."


def _apex_scale(loaded: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Return the state of Apex's first loss scaler, in the words of ``torch.amp.GradScaler``."""
    state = next((loaded[key] for key in _APEX_KEYS if key in loaded), None)
    first = next(iter(state.values()), None) if isinstance(state, Mapping) else None
    if not isinstance(first, Mapping) or not first.keys() >= _APEX_SCALER:
        return None
    fresh = torch.amp.GradScaler("cpu").state_dict()
    return {**fresh, "scale": float(first["loss_scale"]), "_growth_tracker": int(first["unskipped"])}


def _apex_masters(loaded: Mapping[str, Any]) -> Iterator[Tensor]:
    """Yield the fp32 masters that Apex's FP16_Optimizer has put into its state."""
    for value in loaded.values():
        groups = value.get("fp32_from_fp16") if isinstance(value, Mapping) else None
        for group in groups if isinstance(groups, Sequence) else ():
            yield from group


def _with_masters(weights: Mapping[str, Tensor], masters: Sequence[Tensor]) -> dict[str, Tensor]:
    """Put masters in the place of 16-bit weights: each has the shape of one, and rounds to it."""
    remaining, found = list(masters), _single(weights)
    for name, weight in weights.items():
        place = next((i for i, each in enumerate(remaining) if _rounds_to(each, weight)), None)
        if place is not None:
            found[name] = remaining.pop(place).detach().float()
    if remaining:
        raise ValueError(
            f"{len(remaining)} of {len(masters)} masters round to no weight of the model: model and "
            "optimizer are not of the same moment"
        )
    return found


def _rounds_to(master: Tensor, weight: Tensor) -> bool:
    same = weight.dtype in HALF_DTYPES and master.shape == weight.shape
    return same and torch.equal(master.detach().to(weight), weight)


def _single(weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name: each.float() if each.is_floating_point() else each for name, each in weights.items()}


# --- checkpoints as they lie on disk: one file, shards with an index, or a folder as frameworks write it

# What transformers, diffusers and accelerate call them; an index says which tensor is in which file.
_INDICES = ("model.safetensors.index.json", "pytorch_model.bin.index.json")
_MODELS = ("model.safetensors", "pytorch_model.bin", "pytorch_model.safetensors", "model.pt", "model.pth")
_SCALER_FILE = "scaler.pt"


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
    scaler = folder / _SCALER_FILE
    state = _file(model)
    return {"model": state, "scaler": _file(scaler)} if scaler.is_file() else state


def _first_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:200]

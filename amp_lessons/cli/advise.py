"""``amp-lessons advise``: whether to train somebody's model in mixed precision, in which dtype, and how."""

from __future__ import annotations

import argparse
import importlib
import os
import sys
from typing import Any

from amp_lessons.cli import typed

READY, TO_BE_MENDED, NOT_RUN = 0, 1, 2

_EPILOG = (
    "make_model() returns the model and a batch, and, if the model does not compute its loss itself, a "
    "function of output and target: `return model, (inputs, target), torch.nn.CrossEntropyLoss()`. If it "
    "returns the model alone, the module's make_batch() makes the batch, and its `loss`, if there is one, is "
    "the loss. The model stays as it is; steps are taken with a copy. Exit status: 0, nothing has to be "
    "mended before training in mixed precision; 1, something has; 2, no advice could be given. In a "
    "notebook: `amp_lessons.advise(model, batch, loss)`."
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of the command."""
    parser.epilog = _EPILOG
    parser.add_argument("maker", metavar="MODULE:FUNCTION", help="what makes the model: my_module:make_model")
    parser.add_argument("--gpu", metavar="NAME", help="the GPU to advise for (default: A100 SXM 40 GB)")
    parser.add_argument(
        "--steps", type=typed.whole(), metavar="N", help="how many steps to audit (default: 20)"
    )
    parser.add_argument(
        "--seconds", type=typed.above_zero, metavar="S", help="about how long it may take (default: 30)"
    )
    parser.add_argument(
        "--context",
        type=typed.whole(),
        metavar="N",
        help="the length of text for which serving a language model is reckoned (default: 4096, or the most "
        "that it knows)",
    )
    typed.add_file(parser, "--html", "write the advice as a page with pictures")


def run(args: argparse.Namespace) -> int:
    """Print the advice, write the page, and return what ``add_arguments`` says."""
    from amp_lessons.advice import advise

    options = {name: getattr(args, name) for name in ("gpu", "steps", "seconds", "context")}
    try:
        given = {name: each for name, each in options.items() if each is not None}
        advice = advise(*_subject(args.maker), **given)
    except (ValueError, TypeError) as error:
        return typed.refuse(f"amp-lessons advise: {error}", NOT_RUN)
    print(advice)
    if args.html:
        from amp_lessons.advice.page import advice_page  # it loads matplotlib

        try:
            typed.write(args.html, advice_page(advice))
        except OSError as error:
            return typed.refuse(f"amp-lessons advise: {error}", NOT_RUN)
    return READY if advice.passed else TO_BE_MENDED


def _subject(maker: str) -> tuple[Any, ...]:
    """Return what ``advise`` takes. Raises ValueError where that cannot be had."""
    module_name, _, name = maker.partition(":")
    if not module_name or not name:
        raise ValueError(f"{maker!r} names no function: write my_module:make_model")
    module = _imported(module_name)
    if not hasattr(module, name):
        offered = ", ".join(each for each in vars(module) if not each.startswith("_")) or "nothing"
        raise ValueError(f"the module {module_name} has no {name!r}; it has {offered:.200}")
    return _parted(_called(getattr(module, name), maker), module, maker)


def _imported(name: str) -> Any:
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and name.startswith(error.name):
            where = f"in {os.getcwd()} or among what is installed"
            right = name.removesuffix(".py").replace("/", ".")
            hint = f": write the module, not the file, {right}:make_model" if right != name else ""
            raise ValueError(f"there is no module {name!r} {where}{hint}") from error
        raise ValueError(f"{name} could not be imported: {error}") from error
    except Exception as error:
        raise ValueError(f"{name} could not be imported: {type(error).__name__}: {error}") from error


def _called(maker: Any, name: str) -> Any:
    if _is_model(maker):
        return maker
    if not callable(maker):
        raise ValueError(f"{name} is no function that makes a model, but {type(maker).__name__}")
    try:
        return maker()
    except Exception as error:
        raise ValueError(f"{name}() raised {type(error).__name__}: {error}") from error


def _parted(made: Any, module: Any, name: str) -> tuple[Any, ...]:
    """Return model, batch and perhaps loss: as they were returned, or from the module's other names."""
    if isinstance(made, (tuple, list)) and len(made) in (2, 3) and _is_model(made[0]):
        return tuple(made)
    if not _is_model(made):
        raise ValueError(
            f"{name}() returned {type(made).__name__}; a model would be right, or (model, batch), or "
            "(model, batch, loss)"
        )
    if not hasattr(module, "make_batch"):
        raise ValueError(
            f"{name}() returned a model alone: return (model, batch), or write make_batch() beside it"
        )
    return made, _called(module.make_batch, f"{module.__name__}:make_batch"), getattr(module, "loss", None)


def _is_model(made: Any) -> bool:
    from torch import nn  # nobody waits for it who only asks for help

    return isinstance(made, nn.Module)

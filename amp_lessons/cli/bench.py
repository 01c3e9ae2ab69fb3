"""``amp-lessons bench``: time well-known models in every precision on this machine."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable
from pathlib import Path

import torch
from tqdm.auto import tqdm

from amp_lessons import devices
from amp_lessons.cli import typed
from amp_lessons.course.bench import cases, folders, results, runner
from amp_lessons.course.bench.confrontation import MODES
from amp_lessons.course.bench.eight_bits import PRECISIONS, precisions_on
from amp_lessons.course.bench.results import table
from amp_lessons.course.bench.workloads import MissingExtraError, benched, require_transformers
from amp_lessons.course.progress import ProgressError
from amp_lessons.measure.stopwatch import usable_device

_EPILOG = (
    "Results are kept for each setup (device, versions, number of threads) in a file of its own; the same "
    "command goes on where an earlier one was interrupted. Lesson 05 shows them beside what is predicted."
)
_PRESETS = (
    "full: the published models. small: a few layers of the same kinds, which a CPU trains in seconds; they "
    "say nothing about the published ones (default: full on a GPU, else small)"
)
_MODES = "eager: as PyTorch runs a model by itself. compiled: by torch.compile (default: both)"
_FOLDER = "where results are kept (default: bench in the folder of your progress; --show names it)"
_SWITCHES = {
    "--retry": "try again what failed earlier",
    "--fresh": "measure again what was measured earlier",
    "--show": "measure nothing; show the results there are, yours and those that the course comes with",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of the command."""
    models, precisions = ", ".join(benched()), ", ".join(PRECISIONS)
    parser.epilog = _EPILOG
    parser.add_argument("--device", help="cuda or cpu (default: the GPU if there is one)")
    parser.add_argument("--preset", choices=("full", "small"), help=_PRESETS)
    _add_list(parser, "--models", benched(), f"which to measure, of {models} (default: all)")
    _add_list(
        parser,
        "--precisions",
        PRECISIONS,
        f"in which precisions, of {precisions} (default: all the device knows). fp8: bf16, with linear "
        "layers in 8 bits where the GPU has kernels for them",
    )
    _add_list(parser, "--modes", MODES, _MODES)
    parser.add_argument(
        "--seconds", type=typed.above_zero, default=3.0, help="how long to time each case (default: 3)"
    )
    parser.add_argument("--results", type=Path, metavar="FOLDER", help=_FOLDER)
    for option, words in _SWITCHES.items():
        parser.add_argument(option, action="store_true", help=words)


def _add_list(parser: argparse.ArgumentParser, option: str, choices: Iterable[str], words: str) -> None:
    """Declare an option that takes one or more of ``choices``, and is None unless it is given."""
    name = option.removeprefix("--").removesuffix("s").upper()
    parser.add_argument(option, nargs="+", choices=tuple(choices), metavar=name, help=words)


def run(args: argparse.Namespace) -> int:
    """Run the command; 1 if it cannot start or keep its results, else 0: failures are results too."""
    if args.show:
        return _show(args.results)
    try:
        require_transformers()
        device = usable_device(args.device or devices.default_device())
    except (MissingExtraError, ValueError) as error:
        return typed.refuse(error)
    try:
        return _bench(args, device, args.results or folders.own_folder())
    except (ProgressError, folders.FolderInUseError, results.UnwritableResultsError) as error:
        return typed.refuse(error)


def _bench(args: argparse.Namespace, device: torch.device, folder: Path) -> int:
    preset = args.preset or ("full" if device.type == "cuda" else "small")
    setup = results.this_setup(device)
    with folders.claimed(folder):
        path, recording, words = runner.resume(folder, setup, preset)
        print(f"{preset} size on {setup.device}. {words}".strip())
        wanted = cases.all_cases(
            args.models or benched(),
            args.precisions or precisions_on(device),
            args.modes or MODES,
            preset,
        )
        todo = runner.outstanding(wanted, recording, fresh=args.fresh, retry=args.retry)
        if not todo:
            print("There is nothing left to measure; --fresh measures all of it again.")
        try:
            recording = _with_progress(todo, recording, path, device, args.seconds)
        except KeyboardInterrupt:
            print(f"\nInterrupted. What was measured is kept in {path}; the same command goes on from there.")
            raise
    print(f"\n{table(recording)}\n\nKept in {path}.")
    return 0


def _with_progress(
    todo: list[cases.BenchCase],
    recording: results.Recording,
    path: Path,
    device: torch.device,
    seconds: float,
) -> results.Recording:
    batches = {result.model: result.batch for result in recording.results.values() if result.batch}
    with tqdm(total=len(todo), unit="case", disable=not todo) as bar:

        def measure(case: cases.BenchCase) -> results.Result:
            bar.set_description(str(case))
            if case.model not in batches:  # the same for all cases of a model, or they could not be compared
                batches[case.model] = cases.fitting_batch(case.model, case.preset, device)
            result = cases.measure(case, batch=batches[case.model], device=device, seconds=seconds)
            bar.update()
            return result

        return runner.run_cases(todo, recording, path, measure)


def _show(folder: Path | None) -> int:
    if folder is not None:
        print(_tables(folder) or f"There are no results in {folder}.")
        return 0
    print(_own_results())
    shipped = folders.shipped_folder()
    if recorded := _tables(shipped):
        print(f"\nRecordings that the course comes with, in {shipped}:\n\n{recorded}")
    return 0


def _own_results() -> str:
    try:
        own = folders.own_folder()
    except ProgressError as error:
        return f"You have no results: {error}"
    if found := _tables(own):
        return f"Your own results, in {own}:\n\n{found}"
    return f"You have no results yet. `amp-lessons bench` measures, and keeps them in {own}."


def _tables(folder: Path) -> str:
    for complaint in folders.unreadable(folder):
        print(complaint, file=sys.stderr)
    return "\n\n".join(map(table, folders.recordings(folder)))

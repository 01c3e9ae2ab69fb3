"""``amp-lessons bench``: time four well-known models in every precision on this machine."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import torch
from tqdm.auto import tqdm

from amp_lessons import devices
from amp_lessons.bench import cases, results, runner
from amp_lessons.bench.report import table
from amp_lessons.bench.workloads import SOURCE_MODELS, MissingExtraError, require_transformers
from amp_lessons.measure import PRECISIONS, precisions_on
from amp_lessons.measure.stopwatch import usable_device

MODES = ("eager", "compiled")
INTERRUPTED = 130  # what shells report after Ctrl-C


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of the command."""
    parser.add_argument("--device", help="cuda or cpu (default: the GPU if there is one)")
    parser.add_argument(
        "--preset", choices=("full", "small"), help="size (default: full on a GPU, else small)"
    )
    parser.add_argument("--models", nargs="+", choices=tuple(SOURCE_MODELS), default=list(SOURCE_MODELS))
    parser.add_argument(
        "--precisions", nargs="+", choices=tuple(PRECISIONS), help="default: all the device knows"
    )
    parser.add_argument("--modes", nargs="+", choices=MODES, default=list(MODES))
    parser.add_argument("--seconds", type=float, default=3.0, help="how long to time each case (default: 3)")
    parser.add_argument("--results", type=Path, help="folder of the results (default: benchmarks/results)")
    parser.add_argument("--retry", action="store_true", help="try again what failed earlier")
    parser.add_argument("--fresh", action="store_true", help="measure again what was measured earlier")
    parser.add_argument("--show", action="store_true", help="only show the results there are")


def run(args: argparse.Namespace) -> int:
    """Run the command; 1 if it cannot start, 130 after an interruption, else 0: failures are results too."""
    folder = args.results or results.results_folder()
    if args.show:
        return _show(folder)
    try:
        require_transformers()
        device = usable_device(args.device or devices.default_device())
    except (MissingExtraError, ValueError) as error:
        return _complain(f"{error}")
    if not args.seconds > 0:
        return _complain("--seconds must be above 0")
    return _bench(args, device, folder)


def _bench(args: argparse.Namespace, device: torch.device, folder: Path) -> int:
    preset = args.preset or ("full" if device.type == "cuda" else "small")
    setup = results.this_setup(device)
    path = folder / results.file_name(setup, preset)
    recording, words = runner.resume(path, setup, preset)
    print(f"{preset} size on {setup.device}. {words}".strip())
    wanted = cases.all_cases(args.models, args.precisions or precisions_on(device), args.modes, preset)
    todo = runner.outstanding(wanted, recording, fresh=args.fresh, retry=args.retry)
    try:
        recording = _with_progress(todo, recording, path, device, args.seconds)
    except KeyboardInterrupt:
        print(f"\nInterrupted. What was measured is kept in {path}; the same command goes on from there.")
        return INTERRUPTED
    print(f"\n{table(recording)}\n\nKept in {path}.")
    return 0


def _with_progress(
    todo: list[cases.Case], recording: results.Recording, path: Path, device: torch.device, seconds: float
) -> results.Recording:
    batches = {result.model: result.batch for result in recording.results.values() if result.batch}
    with tqdm(total=len(todo), unit="case", disable=not todo) as bar:

        def measure(case: cases.Case) -> results.Result:
            bar.set_description(str(case))
            if case.model not in batches:  # the same for all cases of a model, or they could not be compared
                batches[case.model] = cases.fitting_batch(case.model, case.preset, device)
            result = cases.measure(case, batch=batches[case.model], device=device, seconds=seconds)
            bar.update()
            return result

        return runner.run_cases(todo, recording, path, measure)


def _show(folder: Path) -> int:
    found = results.recordings(folder)
    print("\n\n".join(map(table, found)) or f"There are no results in {folder}.")
    return 0


def _complain(message: str) -> int:
    print(message, file=sys.stderr)
    return 1

"""``amp-lessons bench`` at full size, one case at a time, into recordings that lesson 05 shows.

Its file is its own: a case that was measured is known there, whoever asked for it.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch

from amp_lessons.bench import benched, results
from amp_lessons.bench.eight_bits import precisions_on
from amp_lessons.bench.folders import path_for
from amp_lessons.commands import bench as command
from tools.gpu.found import Figure, Found, NotPossibleError, Place, needed


def parts(place: Place) -> tuple[str, ...]:
    """Name every model in every precision."""
    needed("transformers")
    return tuple(f"{model} {name}" for model in benched() for name in precisions_on(place.device))


def run(name: str, place: Place, mode: results.Mode = "eager", seconds: float = 3.0) -> Found:
    """Measure one case as the command does, and say what it says."""
    model, _, precision = name.rpartition(" ")
    parser = argparse.ArgumentParser()
    command.add_arguments(parser)
    what = ["--device", place.device, "--preset", place.preset, "--models", model, "--modes", mode]
    how = ["--precisions", precision, "--seconds", str(seconds), "--results", place.bench_folder]
    # What an earlier call was ended in the middle of stands there as a failure.
    if command.run(parser.parse_args([*what, *how, "--retry"])) != 0:
        raise RuntimeError("amp-lessons bench could not start")
    setup = results.this_setup(torch.device(place.device))
    recording = results.read(path_for(Path(place.bench_folder), setup, place.preset))
    return _found(recording, (model, precision, mode))


def _found(recording: results.Recording, key: results.Key) -> Found:
    result = recording.results[key]
    if result.outcome in ("does not fit", "not supported"):
        raise NotPossibleError(result.message)
    if result.timing is None:
        raise RuntimeError(f"{result.outcome}: {result.message}")
    figures = [Figure("batch", result.batch), Figure("step", result.timing.median_ms, "ms")]
    if result.peak_bytes is not None:
        figures.append(Figure("peak", result.peak_bytes, "bytes"))
    speedup = recording.speedup(*key)
    if speedup is not None and key[1:] != ("fp32", "eager"):
        figures.append(Figure("against eager fp32", str(speedup)))
    return Found(tuple(figures))

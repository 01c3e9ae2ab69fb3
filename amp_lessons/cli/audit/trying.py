"""``amp-lessons audit --try``: the script again and again, each time with one thing changed, bounded in time.

Each run is a process of its own, which begins where the script begins: with the same random numbers, unless
the script draws them from elsewhere, and the same data. What differs all the same is measured by running the
script, unchanged but for a rounding error in its weights, two more times.
"""

from __future__ import annotations

import json
import math
import subprocess
import sys
import time
from collections.abc import MutableMapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path

from amp_lessons.audit.findings import INPUT_OF
from amp_lessons.audit.report.losses import layer_rows
from amp_lessons.audit.report.report import Report
from amp_lessons.audit.seen import AS_TRAINED
from amp_lessons.audit.trying import AS_IT_IS, Run, Trial, Tried
from amp_lessons.cli.audit import parent
from amp_lessons.cli.audit.parent import Options

STEPS = 100  # unless --steps says otherwise
_AGAIN = 2  # equal runs beside the first
_MOST_ISLANDS, _MOST_LAYERS, _MOST_PARTS = 4, 2, 4
_NEVER = 2**62  # how seldom a run is looked at closely of which only losses are wanted
_INTERRUPTED = "it was interrupted"
_HALVES = ("fp16", "bf16")


class Trials:
    """Runs of one script: ``options`` and ``arguments`` are the audit's, ``minutes`` are for all of them."""

    def __init__(self, options: Options, arguments: Sequence[str], minutes: float, folder: Path) -> None:
        self._options, self._arguments, self._folder = options, arguments, folder
        self._end_s = time.monotonic() + 60 * minutes
        self._minutes = minutes
        self._longest_s = 0.0
        self._interrupted = False
        self._left_out: list[str] = []

    def tried(self, report: Report, wanted: Sequence[Trial]) -> Tried:
        """Try what is ``wanted``, or what ``report`` and a search of the model suggest.

        ``report`` is the report of the script as it is.
        """
        as_it_is = _run_of(AS_IT_IS, report, failed=report.ended)
        if problem := _obstacle(report):
            return Tried("", as_it_is, Run("fp32", failed=problem))
        assert report.precision is not None
        half = next(name for name in report.precision.autocast_names if name in _HALVES)
        fp32 = self._run("fp32", Trial(whole="fp32"))
        again = tuple(
            self._run(f"equal run {1 + seed}", Trial(nudge=seed, half=half)) for seed in range(1, 1 + _AGAIN)
        )
        tried = Tried(half, as_it_is, fp32, tuple(run for run in again if run.losses))
        if wanted or tried.something_to_gain:
            trials = dict.fromkeys(wanted or self._suggested(report, half))
            others = (self._run(str(trial), trial) for trial in trials if str(trial) != "fp32")
            tried = replace(tried, others=tuple(others))
        return replace(tried, left_out=tuple(self._left_out))

    def _suggested(self, report: Report, half: str) -> list[Trial]:
        """Return what is worth trying: another format, islands that help a single pass, the worst layers."""
        file = self._folder / "islands.json"  # with the names of the model's parts, and its device
        run = self._run("a search for islands", Trial(islands=str(file), half=half))
        searched = json.loads(file.read_text("utf-8")) if file.exists() and not run.failed else {}
        islands, parts = searched.get("islands", []), searched.get("parts", [])
        found = islands[:_MOST_ISLANDS]
        worst = [name for name in _worst(report) if name not in found]
        modules = [*found, *worst] or parts[:_MOST_PARTS]
        return [
            *([Trial(whole="bf16")] if half == "fp16" else []),
            *([Trial(modules=tuple(islands))] if len(islands) > 1 else []),
            *(Trial(modules=(name,)) for name in modules),
            *([Trial(reduce=True)] if searched.get("device") == "cuda" else []),
        ]

    def _run(self, what: str, trial: Trial) -> Run:
        left_s = self._end_s - time.monotonic()
        if self._interrupted or left_s < self._longest_s:
            no_time = f"no time was left of {self._minutes:g} minutes; --minutes gives more"
            return self._failed(what, _INTERRUPTED if self._interrupted else no_time)
        print(f"amp-lessons audit: trying {what} …", file=sys.stderr, flush=True)
        kept = self._folder / "trial.json"
        kept.unlink(missing_ok=True)
        options = replace(self._options, kept=str(kept), every=_NEVER, log=None, trial=asdict(trial))
        start = time.monotonic()
        try:
            done = subprocess.run(
                parent.child_command(options, self._arguments),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                timeout=left_s,
            )
        except subprocess.TimeoutExpired:
            return self._failed(what, f"{self._minutes:g} minutes were over; --minutes gives more")
        except KeyboardInterrupt:  # what was found so far is still to be told
            self._interrupted = True
            return self._failed(what, _INTERRUPTED)
        self._longest_s = max(self._longest_s, time.monotonic() - start)
        if trial.islands and done.returncode == 0:
            return Run(what)
        said = done.stderr.decode(errors="replace").strip().splitlines() or ["it ended without a step"]
        report = Report.from_json(kept.read_text("utf-8")) if kept.exists() else Report(())
        if not report.steps:
            return self._failed(what, said[-1])
        return _run_of(what, report, failed=said[-1] if done.returncode else "")

    def _failed(self, what: str, why: str) -> Run:
        self._left_out.append(f"Not tried: `{what}`: {why.rstrip('.')}.")
        return Run(what, failed=why)


def prepare(environment: MutableMapping[str, str]) -> None:
    """Let sets have the same order in every run, where nobody has said otherwise."""
    environment.setdefault("PYTHONHASHSEED", "0")


def _obstacle(report: Report) -> str:
    """Say why nothing can be tried; "" where something can."""
    if not any(step.loss is not None for step in report.steps):
        return "Nothing was tried: no loss of this training was seen."
    ran = report.precision
    if ran is None or not set(ran.autocast_names) & set(_HALVES):
        return (
            "Nothing was tried: no loss was computed under autocast in 16 bits, and the precision in which "
            "autocast computes is what a trial changes."
        )
    return ""


def _run_of(what: str, report: Report, failed: str) -> Run:
    """Return the losses of the first optimizer's steps; ``failed`` says how the script ended, if not well."""
    steps = [step for step in report.steps if step.optimizer == 0]
    losses = tuple(float(math.nan if step.loss is None else step.loss) for step in steps)
    return Run(what, losses, sum(not step.happened for step in steps), failed)


def _worst(report: Report) -> list[str]:
    """Name the layers whose gradients lose most in training, and the module of the first inf or NaN."""
    first = report.first_nonfinite
    # what a module was given was bad already: it is not to blame
    named = first is not None and not first.recovered and not first.module.startswith(INPUT_OF)
    broken = [first.module] if first is not None and named else []
    rows = layer_rows(report)[:_MOST_LAYERS]
    losing = [row.name for row in rows if (loss := row.losses.get(AS_TRAINED)) is not None and loss.norm > 0]
    return list(dict.fromkeys([*broken, *losing]))[:_MOST_LAYERS]

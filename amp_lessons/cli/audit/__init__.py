"""``amp-lessons audit``: run somebody's training script as it is, and say what is wrong with it.

The script runs as ``__main__`` in a child process (``child``), whose ``LateAudit`` begins to watch once
PyTorch has been imported, and keeps what it has seen in a file. Whatever ends the script, that file is there
for the parent (``parent``), which never loads PyTorch and prints the report. Under ``torchrun`` every rank is
such a pair, and the parents meet in a folder, where one joins the reports of all (``ranks``).
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path

from amp_lessons._base import files
from amp_lessons._base.typed_json import dumps
from amp_lessons.audit.log import is_of_lines, obstacle
from amp_lessons.audit.report.report import Report
from amp_lessons.audit.trying import RIGHT, Trial, Tried, trial_of
from amp_lessons.cli import typed
from amp_lessons.cli.audit import parent, ranks, trying
from amp_lessons.cli.audit.parent import Options
from amp_lessons.cli.audit.ranks import Meeting

_EPILOG = (
    "The script's own output and input pass through; the report is printed to stderr when it has ended. "
    "Exit status: 0, no mistake was seen; 1, mistakes were seen; 2, the script could not be run, took no "
    "optimizer step in its own process, or failed without a mistake having been seen; 130, Ctrl-C, likewise. "
    "Under torchrun, `torchrun … -m amp_lessons audit SCRIPT`, each rank is audited, one report covers "
    "all, and all return one status. In a notebook use `with audit.watch(model) as seen:` instead."
)
_LAUNCHERS = ("torch.distributed.run", "torch.distributed.launch", "accelerate.commands.launch")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of the command; what stands after ``--`` is the script's."""
    parser.usage = "amp-lessons audit [options] (SCRIPT | -m MODULE) [-- the script's own arguments]"
    parser.epilog = _EPILOG
    parser.set_defaults(after_dashes=[])
    parser.add_argument("script", nargs="?", metavar="SCRIPT", help="the Python file to run")
    parser.add_argument("-m", "--module", metavar="MODULE", help="run a module instead, as python -m does")
    steps = "end it after N optimizer steps, skipped ones included"
    parser.add_argument("--steps", type=typed.whole(), metavar="N", help=steps)
    parser.add_argument(
        "--every",
        type=typed.whole(),
        default=10,
        metavar="K",
        help="look closely at every K-th step of each optimizer (default: 10)",
    )
    typed.add_file(parser, "--html", "write the report as a page with pictures")
    typed.add_file(parser, "--json", "write the report for programs to read")
    parser.add_argument(
        "--log",
        "--stream",
        type=_log,
        metavar="FILE",
        help="write each step while the script runs: lines of JSON into FILE.jsonl, or TensorBoard's scalars "
        "into a folder of any other name; under torchrun, which takes --log for its own, say --stream",
    )
    parser.add_argument(
        "--try",
        dest="tries",
        type=_trial,
        nargs="*",
        metavar="WHAT",
        help="afterwards, run the script again for each WHAT, and say what of the difference to fp32 it "
        f"explains: {RIGHT}; alone, what the audit and a search of the model find worst. "
        f"Every run takes N optimizer steps (default: {trying.STEPS}); what the script writes, it writes "
        "each time",
    )
    parser.add_argument(
        "--minutes",
        type=typed.above_zero,
        default=10.0,
        metavar="M",
        help="the time for all runs of --try together (default: 10)",
    )
    parser.add_argument(
        "--shared",
        type=Path,
        metavar="FOLDER",
        help="a folder that all machines see, for ranks on several of them",
    )


def run(args: argparse.Namespace) -> int:
    """Run the script, print the report, and return what ``add_arguments`` says."""
    if (args.script is None) == (args.module is None):
        args.parser.error("name one script, or one module with -m")
    if obstacle := _obstacle(args):
        return _not_run(obstacle)
    rank = ranks.of_environment(os.environ, args.shared)
    if rank is not None and args.tries is not None:
        return _not_run("--try runs the script in one process; start it without torchrun")
    return _run_alone(args) if rank is None else _run_as_rank(args, rank)


def _not_run(reason: object) -> int:
    return typed.refuse(f"amp-lessons audit: {reason}", parent.NOT_RUN)


def _run_alone(args: argparse.Namespace) -> int:
    if args.tries is not None:
        args.steps = args.steps or trying.STEPS
        trying.prepare(os.environ)
    with tempfile.TemporaryDirectory(prefix="amp-lessons-audit-") as folder:
        kept = Path(folder) / "report.json"
        options = _options(args, kept)
        status = parent.run_child(options, args.after_dashes)
        report = _printed(args, parent.report_of(kept, _name(args), status))
        if args.tries is None:
            return _write(args, report, status)
        trials = trying.Trials(options, args.after_dashes, args.minutes, Path(folder))
        tried = trials.tried(report, args.tries)
    print(f"\n{tried}", file=sys.stderr)
    return _write(args, report, status, tried)


def _run_as_rank(args: argparse.Namespace, rank: ranks.Rank) -> int:
    try:
        meeting = Meeting(rank)
    except OSError as error:
        return _not_run(f"the ranks cannot meet: {error}")
    if not rank.writes_files:
        args.json = args.html = None  # they are rank 0's, which may lie on the same disk
    if rank.number != 0:
        args.log = None

    def publish(report: Report, status: int) -> int:
        return _write(args, _printed(args, report), status)

    options = _options(args, meeting.kept_by(rank.number))
    return ranks.run(meeting, options, args.after_dashes, _name(args), publish)


def _options(args: argparse.Namespace, kept: Path) -> Options:
    return Options(
        kept=str(kept),
        every=args.every,
        steps=args.steps,
        script=args.script,
        module=args.module,
        log=None if args.log is None else str(args.log.absolute()),  # the script may go to another folder
        trial=None if args.tries is None else asdict(Trial()),  # as it is, and begun as the others will be
    )


def _trial(text: str) -> Trial:
    """Read what is to be tried."""
    try:
        return trial_of(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{error}; the script goes before --try") from None


def _log(text: str) -> Path:
    """Read the name of a log: a file of lines, or a folder for TensorBoard where that is installed."""
    path = Path(text).expanduser()
    if problem := obstacle(path):
        raise argparse.ArgumentTypeError(problem)
    return typed.file_to_write(text) if is_of_lines(path) else typed.folder_to_write(text)


def _name(args: argparse.Namespace) -> str:
    return f"-m {args.module}" if args.module else args.script


def _printed(args: argparse.Namespace, report: Report) -> Report:
    """Print the report and return it; it says what was not seen because the script was ended."""
    if args.steps and len(report.steps) >= args.steps:
        report = parent.and_not_seen(
            report, f"what comes after step {args.steps}, where --steps ended the script"
        )
    print(f"\n{report}", file=sys.stderr)
    return report


def _write(args: argparse.Namespace, report: Report, status: int, tried: Tried | None = None) -> int:
    """Write the files that were asked for, and return the exit status."""
    told = report.to_dict() | ({} if tried is None else {"tried": tried.as_dict()})
    try:
        if args.json:
            typed.write(args.json, dumps(told, indent=1) + "\n")
        if args.html:
            from amp_lessons.audit.page import page  # it loads matplotlib

            typed.write(args.html, page(report, *([] if tried is None else [tried.section()])))
    except OSError as error:
        return _not_run(error)
    return parent.exit_status(report, status)


def _obstacle(args: argparse.Namespace) -> str:
    """Describe what is wrong before anything runs; "" where nothing is."""
    if args.script is not None and args.script.endswith(".ipynb"):
        return f"{args.script} is a notebook; in it, use `with audit.watch(model) as seen:`"
    if args.script is not None and Path(args.script).is_dir():
        return f"{args.script} is a folder; name the Python file in it that trains"
    if args.script is not None and not Path(args.script).is_file():
        return f"there is no file {args.script}"
    if args.module in _LAUNCHERS:
        return f"{args.module} starts the ranks, which audit: torchrun … -m amp_lessons audit SCRIPT"
    if args.shared is not None and not (args.shared.is_dir() and files.may_write_in(args.shared)):
        return f"{args.shared} cannot be shared: name a folder that is there and yours"
    return ""

"""The tests that are marked ``gpu``, file by file: one that breaks CUDA's context breaks no other file's."""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from pathlib import Path
from xml.etree import ElementTree

from tools.gpu.found import Agreement, Figure, Found, NotPossibleError, Place, needed
from tools.gpu.process import ROOT

MARK = re.compile(r"""^[^"'#\n]*\bpytest\.mark\.gpu\b""", re.MULTILINE)
LONGEST_MESSAGE = 300
_REASON = "a test passes or does not"


def parts(place: Place, root: Path = ROOT) -> tuple[str, ...]:
    """Name the files that have such tests."""
    needed("pytest")
    paths = sorted((root / "tests").rglob("test_*.py"))
    return tuple(str(path.relative_to(root)) for path in paths if MARK.search(path.read_text("utf-8")))


def run(name: str, place: Place, root: Path = ROOT) -> Found:
    """Run those of one file."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        done = subprocess.run(_command(name, report), cwd=root, capture_output=True, text=True)
        print(done.stdout, done.stderr, sep="\n")
        if not report.exists():
            raise RuntimeError(f"pytest ended with exit status {done.returncode} and without a report")
        return found_in(report.read_text("utf-8"), name)


def _command(name: str, report: Path) -> list[str]:
    """Ask for less than pyproject.toml does: the marks of plugins that are not here are no error."""
    options = ["-q", "-m", "gpu", "-p", "no:cacheprovider", "-o", "addopts=--import-mode=importlib"]
    return [sys.executable, "-m", "pytest", name, *options, f"--junitxml={report}"]


def found_in(report: str, name: str) -> Found:
    """Read pytest's report. Raises NotPossibleError where the file needs a package that is missing."""
    cases = list(ElementTree.fromstring(report).iter("testcase"))
    lacking = [found for case in cases for found in _lacking(case)]
    if lacking:
        raise NotPossibleError(f"this Python lacks {', '.join(dict.fromkeys(lacking))}")
    skipped = [case for case in cases if case.find("skipped") is not None]
    ran = [case for case in cases if case not in skipped]
    agreements = tuple(
        Agreement(f"`{name}::{case.get('name')}`", "passes", _outcome(case), _REASON) for case in ran
    )
    passed = sum(agreement.agrees for agreement in agreements)
    counts = {"passed": passed, "failed": len(ran) - passed, "skipped": len(skipped)}
    figures = tuple(Figure(outcome, count) for outcome, count in counts.items() if count)
    return Found(figures, agreements, tuple(f"skipped: {case.get('name')}: {_why(case)}" for case in skipped))


def _lacking(case: ElementTree.Element) -> list[str]:
    """Name the package without which a file could not even be read."""
    error = case.find("error")
    words = "" if error is None else f"{error.get('message')} {error.text}"
    return re.findall(r"No module named '([\w.]+)'", words) if "collection" in words else []


def _outcome(case: ElementTree.Element) -> str:
    for kind in ("failure", "error"):
        trouble = case.find(kind)
        if trouble is not None:
            words = " ".join((trouble.get("message") or trouble.text or "no message").split())
            return f"{kind}: {words[:LONGEST_MESSAGE]}"
    return "passes"


def _why(case: ElementTree.Element) -> str:
    skipped = case.find("skipped")
    return "no reason" if skipped is None else skipped.get("message", "no reason")

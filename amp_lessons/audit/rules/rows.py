"""What is said of a mistake, and how its row is entered.

A mistake that several places find is a function, called as its code, which words what was seen and how it is
mended; its arguments are what differs: whose step it was, which numbers were seen. One that a single exercise
finds is worded in that exercise's check, and has no row.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial, wraps
from inspect import signature
from typing import Any, Literal, ParamSpec

from amp_lessons.audit.findings import Finding, FindingKind, Sighting

Cost = Literal["stops", "wrong", "rounded", "beside", "gain"]
# what a mistake costs the training, the most first
COSTS: dict[Cost, str] = {
    "stops": "the training learns nothing, or ends",
    "wrong": "the weights get other updates than they should",
    "rounded": "digits are lost from what is computed or kept",
    "beside": "what goes along with the updates is wrong: schedules, averages, logs, checkpoints",
    "gain": "what mixed precision is for is not gained",
}
Worded = tuple[str, str]  # what was seen and why it matters, and the cure
_P = ParamSpec("_P")


@dataclass(frozen=True)
class Row:
    """One mistake: its ``code``, what that ``means`` in half a sentence, and the ``lesson`` that explains it.

    ``section`` is the id of the heading's cell there, empty where no one section does.

    ``seen_by`` says who can find it in somebody's training. Where an audit cannot, ``unseen`` says why: what
    it does not know, and a check does, which has asked for the training. ``costs`` is a key of ``COSTS``,
    ``words`` make what a report says of it.
    """

    code: str
    means: str
    lesson: str
    seen_by: Literal["audit", "check", "both"]
    unseen: str
    costs: Cost
    words: Callable[..., Worded]
    section: str = ""

    @property
    def says(self) -> Worded:
        """The words of a report, and its cure: … for what differs; empty where all does."""
        needed = (
            name for name, each in signature(self.words).parameters.items() if each.default is each.empty
        )
        says, cure = self.words(**dict.fromkeys(needed, _Open("…")))
        return re.sub(r"^…: …$|^…[:;,] (and )?|: …$", "", says), "" if cure == "…" else cure


ROWS: dict[str, Row] = {}
# Where the site, once published, says what each code means, as `amp-lessons explain` does.
EXPLAINED_AT = "https://amp-lessons.github.io/amp-lessons/explain.html#code-"


def weight(code: str) -> int:
    """Return the place of a mistake among those that cost more or less, from 0 for the most."""
    return list(COSTS).index(ROWS[code].costs) if code in ROWS else len(COSTS)


def order(sighting: Sighting) -> tuple[bool, int, bool, int]:
    """Put mistakes before remarks, what costs the training most before the rest, and what is sure first."""
    return sighting.ok, weight(sighting.code), bool(sighting.likely), sighting.first_step


def sighting(finding: Finding, **seen: Any) -> Sighting:
    """Return a finding as a training has shown it, with the lesson of its row; ``seen`` says how."""
    return Sighting(**asdict(finding), lesson=ROWS[finding.code].lesson, **seen)


def mistake(
    means: str,
    lesson: str = "04",  # the loop itself is lesson 04's
    section: str = "",
    only_audit: bool = False,
    unseen: str = "",
    costs: Cost = "wrong",
    kind: FindingKind = "failed",
) -> Callable[[Callable[_P, Worded]], Callable[_P, Finding]]:
    """Enter a function that words a mistake as the row of its name; what it returns becomes the finding.

    ``unseen`` says why an audit cannot find it, ``only_audit`` that no check looks for it.
    """

    def enter(words: Callable[_P, Worded]) -> Callable[_P, Finding]:
        code = words.__name__
        seen_by: Literal["audit", "check", "both"] = "audit" if only_audit else "check" if unseen else "both"
        ROWS[code] = Row(code, means, lesson, seen_by, unseen, costs, words, section)

        @wraps(words)
        def finding(*args: _P.args, **kwargs: _P.kwargs) -> Finding:
            return Finding(code, kind, *words(*args, **kwargs))

        return finding

    return enter


remark = partial(mistake, kind="note")  # it leaves an exercise solved


class _Open(str):
    """What differs from one training to the next: three dots, also where a number is expected."""

    def __format__(self, spec: str) -> str:
        return "…"

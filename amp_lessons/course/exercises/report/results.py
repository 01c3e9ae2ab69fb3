"""What a check, a hint and a solution hand back: plain frozen dataclasses that read well everywhere."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import zip_longest
from typing import Any, Literal

from markupsafe import Markup

from amp_lessons._base.render import entries_html
from amp_lessons._base.text import prose
from amp_lessons._base.text.tables import Shown, Table
from amp_lessons.audit.findings import Finding
from amp_lessons.audit.report.finding import entry_of
from amp_lessons.course.exercises.report import rendering

_MOST_PRINTED_LINES = 12
_ORDER = {"todo": 0, "failed": 1, "note": 2, "passed": 3}
Status = Literal["passed", "not passed", "not attempted yet"]


@dataclass(frozen=True)
class SideBySide:
    """Expected numbers beside the learner's, for example the mean loss of each epoch.

    ``expected`` and ``yours`` are in the unit that ``quantity`` names, one value per ``index``.
    """

    quantity: str
    index: str
    expected: tuple[float, ...]
    yours: tuple[float, ...]

    @property
    def differs(self) -> bool:
        """Whether there is a difference to see; numbers that end early are no news beside the finding."""
        pairs = zip(self.expected, self.yours, strict=False)
        return any(f"{expected:.6g}" != f"{yours:.6g}" for expected, yours in pairs)

    @property
    def table(self) -> Table:
        """The numbers as a table."""
        rows = [
            (i, *("–" if each is None else f"{each:.6g}" for each in pair))
            for i, pair in enumerate(zip_longest(self.expected, self.yours), start=1)
        ]
        return Table((self.index, "expected", "yours"), rows, self.quantity)


@dataclass(frozen=True, repr=False)
class Report(Shown):
    """The outcome of one check: the root cause of a failure first, then notes, then what already holds.

    With ``seed``, if any, a check draws the same cases again.
    """

    exercise_id: str
    title: str
    findings: tuple[Finding, ...]
    comparisons: tuple[SideBySide, ...] = ()
    printed: str = ""
    seed: int | None = None

    @classmethod
    def from_judge(cls, exercise_id: str, title: str, said: dict[str, Any]) -> Report:
        """Make a report of what a judge has said, mistakes before remarks before what holds."""
        findings = sorted((Finding(*each) for each in said["findings"]), key=lambda each: _ORDER[each.kind])
        comparisons = tuple(
            SideBySide(quantity, index, tuple(expected), tuple(yours))
            for quantity, index, expected, yours in said["comparisons"]
        )
        return cls(exercise_id, title, tuple(findings), comparisons, said["printed"], said["seed"])

    @property
    def attempted(self) -> bool:
        """Whether there was anything to check."""
        return all(finding.kind != "todo" for finding in self.findings)

    @property
    def passed(self) -> bool:
        """Whether every requirement holds."""
        return bool(self.findings) and all(finding.ok for finding in self.findings)

    @property
    def points(self) -> float:
        """1.0 where the exercise is solved, else 0.0: for graders."""
        return 1.0 if self.passed else 0.0

    @property
    def status(self) -> Status:
        """Say ``passed``, ``not passed`` or ``not attempted yet``."""
        if not self.attempted:
            return "not attempted yet"
        return "passed" if self.passed else "not passed"

    @property
    def tables(self) -> tuple[Table, ...]:
        """Numbers help to find a mistake; beside a passed check they would push it off the screen."""
        return () if self.passed else tuple(each.table for each in self.comparisons if each.differs)

    @property
    def again(self) -> str:
        """How a refusal is had again: cases are drawn anew at each check."""
        if self.seed is None or self.status != "not passed":
            return ""
        return f'the same cases again: exercises.check("{self.exercise_id}", …, seed={self.seed})'

    @property
    def printed_first(self) -> str:
        """The first printed lines say what the others do: a check calls some attempts thousands of times."""
        lines = self.printed.splitlines()
        return "\n".join([*lines[:_MOST_PRINTED_LINES], *(["…"] if len(lines) > _MOST_PRINTED_LINES else [])])

    def __str__(self) -> str:
        lines = [f"{self.title}: {self.status}"]
        lines += [line for each in self.findings for line in entry_of(each).lines()]
        lines += [line for table in self.tables for line in ("", str(table))]
        lines += ["", "your code printed:", self.printed_first] if self.printed else []
        return "\n".join([*lines, *(["", self.again] if self.again else [])])

    def as_markdown(self) -> str:
        """Render for GitHub, and for notebooks without HTML."""
        lines = [f"**{self.title}: {self.status}**", ""]
        lines += [entry_of(each).as_markdown() for each in self.findings]
        lines += [line for table in self.tables for line in ("", table.as_markdown())]
        lines += ["", "Your code printed:", "", "```", self.printed_first, "```"] if self.printed else []
        return "\n".join([*lines, *(["", self.again] if self.again else [])])

    def as_html(self) -> Markup:
        """Render as HTML whose meaning never rests on colour alone."""
        return Markup(
            '<section class="amp-report" aria-label="Check of {title}"><p><strong>{title}: {status}</strong>'
            "</p>{findings}{numbers}{printed}{again}</section>"
        ).format(
            title=self.title,
            status=self.status,
            findings=entries_html(map(entry_of, self.findings)),
            numbers=Markup("").join(table.as_html() for table in self.tables),
            printed=self.printed_html(),
            again=Markup("<p><small>{}</small></p>").format(self.again) if self.again else "",
        )

    def printed_html(self) -> Markup:
        """Render what the attempt printed, if anything."""
        printed = Markup("<p>Your code printed:</p><pre>{}</pre>")
        return printed.format(self.printed_first) if self.printed else Markup("")


@dataclass(frozen=True, repr=False)
class Hint(Shown):
    """The ``number``-th of ``total`` hints, from a nudge to nearly there.

    ``message`` says what is wrong with the progress file, if anything is.
    """

    exercise_id: str
    number: int
    total: int
    text: str
    message: str = ""

    @property
    def heading(self) -> str:
        """Which one it is."""
        return f"Hint {self.number} of {self.total}"

    def __str__(self) -> str:
        return f"{self.heading}: {self.text}{rendering.message_text(self.message)}"

    def as_markdown(self) -> str:
        """Render a heading and a paragraph."""
        said = prose.as_markdown(self.text)
        return f"**{self.heading}.** {said}{rendering.message_markdown(self.message)}"

    def as_html(self) -> Markup:
        """Render the same as HTML."""
        said = prose.as_html(self.text)
        message = rendering.message_html(self.message)
        return Markup("<p><strong>{}.</strong> {}</p>{}").format(self.heading, said, message)


@dataclass(frozen=True)
class OtherWay:
    """Another good answer: what it is called, what distinguishes it, and its source."""

    title: str
    note: str
    source: str

    @property
    def heading(self) -> str:
        """What stands above it."""
        return f"Another way: {self.title}"


@dataclass(frozen=True, repr=False)
class Solution(Shown):
    """One right answer: its ``source``, why it is right, and the object that ``source`` defines.

    ``other_ways`` are as good, or better in what they say; ``message`` says what is wrong with the progress
    file, if anything is.
    """

    exercise_id: str
    source: str
    explanation: str
    function: Any
    message: str = ""
    other_ways: tuple[OtherWay, ...] = ()

    def __str__(self) -> str:
        ways = [f"{way.heading}. {way.note}\n\n{way.source}" for way in self.other_ways]
        text = "\n\n".join([f"{self.source}\n{self.explanation}", *ways])
        return f"{text}{rendering.message_text(self.message)}"

    def as_markdown(self) -> str:
        """Render code first, then why it is right, then other ways."""
        text = [f"```python\n{self.source}```", prose.as_markdown(self.explanation)]
        for way in self.other_ways:
            text.append(f"**{prose.as_markdown(way.heading)}.** {prose.as_markdown(way.note)}")
            text.append(f"```python\n{way.source}```")
        return "\n\n".join(text) + rendering.message_markdown(self.message)

    def as_html(self) -> Markup:
        """Render the same as HTML, other ways folded."""
        code = Markup("<pre><code>{}</code></pre>")
        return Markup("{}<p>{}</p>{}{}").format(
            code.format(self.source),
            prose.as_html(self.explanation),
            rendering.ways_html(self.other_ways, lambda way: code.format(way.source)),
            rendering.message_html(self.message),
        )

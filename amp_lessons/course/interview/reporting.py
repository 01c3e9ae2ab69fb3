"""What a mock interview came to: turn by turn, what went well and what to repeat; reports in sections."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from markupsafe import Markup

from amp_lessons._base.render import InSections, Section
from amp_lessons._base.text import prose
from amp_lessons._base.text.words import counted
from amp_lessons.course.exercises import Report
from amp_lessons.course.interview.bank import in_words, question
from amp_lessons.course.interview.planning import Asked

_STRONG = 2 / 3  # of what was asked of a topic


class ToldInSections(InSections):
    """What shows itself as a heading, sections of sentences, and a message on the progress file, if any."""

    message: str

    @property
    def title(self) -> str:
        """What a page of it is called."""
        raise NotImplementedError

    @property
    def heading(self) -> str:
        """What it is about, and how it went, in one sentence."""
        raise NotImplementedError

    def appendix(self, level: str = "h4") -> Markup:
        """Render what a page to print has beside the report, below headings of ``level``; nothing, mostly."""
        return Markup("")

    def opening(self) -> Iterator[str]:
        """Yield the heading."""
        yield self.heading

    def __str__(self) -> str:
        return "\n\n".join(filter(None, [super().__str__(), self.message]))

    def as_markdown(self) -> str:
        """Render headings, lists and the message."""
        return "\n\n".join(filter(None, [super().as_markdown(), prose.as_markdown(self.message)]))

    def as_html(self, level: str = "h4") -> Markup:
        """Render headings of ``level`` and lists."""
        heading = Markup("<p><strong>{}</strong></p>").format(prose.as_html(self.heading))
        below = (section.as_html(level) for section in self.all_sections())
        message = Markup("<p>{}</p>").format(self.message) if self.message else Markup("")
        return Markup("\n").join(filter(None, [heading, *below, message]))


@dataclass(frozen=True)
class Turn:
    """What was asked, which of its points were covered (by place, from 0), and how long that took.

    ``said`` is the number that was guessed, ``hand_ins`` are the reports of the checks of code, in order.
    """

    asked: Asked
    covered: tuple[int, ...]
    seconds: float
    said: str = ""
    hand_ins: tuple[Report, ...] = ()

    @property
    def missed(self) -> tuple[str, ...]:
        """The points that were not covered."""
        return tuple(point for i, point in enumerate(self.asked.points) if i not in self.covered)

    @property
    def share(self) -> float:
        """How much of it was covered, from 0 to 1."""
        return len(self.covered) / len(self.asked.points)


@dataclass(frozen=True, repr=False)
class MockReport(ToldInSections):
    """The turns of an interview; ``message`` says what is wrong with the progress file, if anything is.

    ``design`` is what was to be designed, where that was asked; there is no level and no seed then.
    """

    level: str
    minutes: int
    seed: int
    turns: tuple[Turn, ...]
    message: str = ""
    design: str = ""

    @property
    def title(self) -> str:
        """What a page of it is called."""
        return "System design" if self.design else "Mock interview"

    @property
    def heading(self) -> str:
        """What it was, and how much of it was covered."""
        spent = sum(turn.seconds for turn in self.turns)
        used = (
            f"{spent / 60:.0f} of {self.minutes} minutes" if spent >= 60 else counted(round(spent), "second")
        )
        what = f"Mock interview, level {self.level}, seed {self.seed}"
        return (
            f"{self.design or what}: {counted(len(self.turns), 'question')} in {used}, "
            f"{100 * self.points:.0f} % covered, weighed by the minutes planned for each"
        )

    @property
    def points(self) -> float:
        """The share that was covered, weighed by planned minutes, from 0.0 to 1.0: for graders."""
        return _weighed(self.turns)

    @property
    def shares(self) -> dict[str, float]:
        """The share that was covered, by topic."""
        topics = dict.fromkeys(turn.asked.topic for turn in self.turns)
        return {topic: _weighed(t for t in self.turns if t.asked.topic == topic) for topic in topics}

    @property
    def strengths(self) -> tuple[str, ...]:
        """The topics of which most was covered."""
        return tuple(topic for topic, share in self.shares.items() if share >= _STRONG)

    @property
    def to_repeat(self) -> tuple[Turn, ...]:
        """The turns in which something was left out, the weakest first.

        A point that was left out, and then told whole when it was asked for, is not among them; and what was
        not told then stands in the question's own turn.
        """
        left = (turn for turn in self.turns if self.left_out(turn) and not turn.asked.left_out)
        return tuple(sorted(left, key=lambda turn: turn.share))

    def left_out(self, turn: Turn) -> tuple[str, ...]:
        """The points of a turn that were not told, then or when they were asked for."""
        told = {
            each.asked.left_out
            for each in self.turns
            if each.asked.follows == turn.asked.question_id and not each.missed
        }
        return tuple(point for point in turn.missed if point not in told)

    @property
    def model_answers(self) -> tuple[tuple[str, str], ...]:
        """What was asked with a good answer, each answer once."""
        found: dict[str, str] = {}
        for turn in self.turns:
            found.setdefault(turn.asked.answer, turn.asked.text)
        return tuple((asked, answer) for answer, asked in found.items())

    def appendix(self, level: str = "h4") -> Markup:
        """Render the model answers."""
        each = Markup("<p><strong>{}</strong></p><p>{}</p>")
        told = (each.format(prose.as_html(asked), prose.as_html(said)) for asked, said in self.model_answers)
        return Markup("<{0}>Model answers</{0}>{1}").format(Markup(level), Markup("").join(told))

    def all_sections(self) -> Iterator[Section]:
        """Yield what went well, what to repeat, and all that was asked."""
        shares = self.shares
        strong = [f"{in_words(topic)}: {100 * shares[topic]:.0f} %" for topic in self.strengths]
        none = ["None yet: two thirds of what was asked of a topic make one."]
        yield Section("Strengths", points=tuple(strong or none))
        left = [self._repeated(turn) for turn in self.to_repeat] or ["Nothing was left out."]
        yield Section("To repeat", points=tuple(left))
        yield Section("What was asked", points=tuple(map(_told, self.turns)) or ("Nothing.",))

    def _repeated(self, turn: Turn) -> str:
        """Name what is to be repeated, with its lesson, or a stage of a design; and what was left out."""
        asked = turn.asked
        last = turn.hand_ins[-1].findings if turn.hand_ins else ()
        wrong = [f". The last check said: {finding.message}" for finding in last if not finding.ok]
        told = "; ".join(self.left_out(turn)) + "".join(wrong[:1])
        if asked.stage:
            return f"{asked.topic}: {told}"
        what = (
            asked.text if asked.exercise is None else f"{asked.exercise.title}, exercise {asked.exercise.id}"
        )
        if asked.follows and not asked.question_id:
            before = {each.asked.question_id: each.asked.text for each in self.turns}  # with its own numbers
            what = f"{before.get(asked.follows) or question(asked.follows).question} {what}"
        return f"{what} (lesson {asked.lesson}): {told}"


def _weighed(turns: Iterable[Turn]) -> float:
    """Return the share that was covered: half an hour of code weighs as much as it took."""
    weights = [(turn.share, turn.asked.minutes) for turn in turns]
    asked = sum(minutes for _, minutes in weights)
    return sum(share * minutes for share, minutes in weights) / asked if asked else 0.0


def _told(turn: Turn) -> str:
    took = f"{turn.seconds:.0f} s" if turn.seconds < 100 else f"{turn.seconds / 60:.0f} min"
    return f"{turn.asked.text}{_said(turn)} ({_came_to(turn)}, {took})"


def _came_to(turn: Turn) -> str:
    """Say what an answer came to: points, or of code how often it was handed in."""
    if turn.asked.kind != "code":
        return f"{len(turn.covered)} of {counted(len(turn.asked.points), 'point')}"
    if not (turn.hand_ins or turn.covered):
        return "nothing handed in"
    failed = sum(not each.passed for each in turn.hand_ins)
    tries = counted(failed, "failed hand-in") if failed else "at the first hand-in"
    return f"{'passed' if turn.covered else 'not passed'}, {tries}"


def _said(turn: Turn) -> str:
    """Repeat the number that was guessed, and put it right."""
    if turn.asked.estimate is None:
        return ""
    right = f"; it is {turn.asked.estimate.value_in_words}" if turn.missed else ""
    return f" You said {turn.said}{right}."

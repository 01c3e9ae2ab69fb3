"""What became of a mock interview: strengths, what to repeat, and all that was asked."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from markupsafe import Markup

from amp_lessons.interview.bank import question
from amp_lessons.text import prose

if TYPE_CHECKING:
    from amp_lessons.interview.mock import Turn

_STRONG = 2 / 3  # of a topic's points
_WIDTH = 80


@dataclass(frozen=True)
class MockReport:
    """The turns of an interview; ``message`` says what is wrong with the progress file, if anything is."""

    level: str
    minutes: int
    seed: int
    turns: tuple[Turn, ...]
    message: str = ""

    @property
    def heading(self) -> str:
        """What it was, and how much of it was covered."""
        covered = sum(len(turn.covered) for turn in self.turns)
        points = sum(len(turn.asked.points) for turn in self.turns)
        spent = sum(turn.seconds for turn in self.turns) / 60
        return (
            f"Mock interview, level {self.level}, seed {self.seed}: {len(self.turns)} questions in "
            f"{spent:.0f} of {self.minutes} minutes, {covered} of {points} points covered"
        )

    @property
    def points(self) -> float:
        """The share of all the points that was covered, from 0.0 to 1.0: for graders."""
        asked = sum(len(turn.asked.points) for turn in self.turns)
        return sum(len(turn.covered) for turn in self.turns) / asked if asked else 0.0

    @property
    def shares(self) -> dict[str, float]:
        """The share of the points that was covered, by topic."""
        found: dict[str, tuple[int, int]] = {}
        for turn in self.turns:
            covered, points = found.get(turn.asked.topic, (0, 0))
            found[turn.asked.topic] = covered + len(turn.covered), points + len(turn.asked.points)
        return {topic: covered / points for topic, (covered, points) in found.items()}

    @property
    def strengths(self) -> tuple[str, ...]:
        """The topics of which most was covered."""
        return tuple(topic for topic, share in self.shares.items() if share >= _STRONG)

    @property
    def to_repeat(self) -> tuple[Turn, ...]:
        """The turns in which something was left out, the weakest first."""
        return tuple(sorted((turn for turn in self.turns if turn.missed), key=lambda turn: turn.share))

    def sections(self) -> Iterator[tuple[str, list[str]]]:
        """Yield each heading with its sentences."""
        shares = self.shares
        strong = [f"{_named(topic)}: {100 * shares[topic]:.0f} % of the points" for topic in self.strengths]
        yield "Strengths", strong or ["None yet: two thirds of a topic's points make one."]
        yield "To repeat", [_to_repeat(turn) for turn in self.to_repeat] or ["Nothing was left out."]
        yield "What was asked", [_told(turn) for turn in self.turns] or ["Nothing."]

    def __str__(self) -> str:
        parts = [_wrapped(self.heading)]
        for title, sentences in self.sections():
            parts += [f"\n{title}", *(_wrapped(each, "- ", "  ") for each in sentences)]
        return "\n".join([*parts, *([f"\n{self.message}"] if self.message else [])])

    __repr__ = __str__

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        return {"text/plain": str(self), "text/markdown": self.as_markdown(), "text/html": self.as_html()}

    def as_markdown(self) -> str:
        """Render headings and lists."""
        parts = [f"**{prose.as_markdown(self.heading)}**"]
        for title, sentences in self.sections():
            parts += [f"**{title}**", "\n".join(f"- {prose.as_markdown(each)}" for each in sentences)]
        return "\n\n".join([*parts, *([prose.as_markdown(self.message)] if self.message else [])])

    def as_html(self, level: str = "h4") -> Markup:
        """Render headings of ``level`` and lists."""
        parts = [Markup("<p><strong>{}</strong></p>").format(self.heading)]
        for title, sentences in self.sections():
            items = Markup("").join(Markup("<li>{}</li>").format(prose.as_html(each)) for each in sentences)
            heading = Markup("<{0}>{1}</{0}>").format(Markup(level), title)
            parts.append(heading + Markup("<ul>{}</ul>").format(items))
        return Markup("\n").join([*parts, Markup("<p>{}</p>").format(self.message)])


def _to_repeat(turn: Turn) -> str:
    what = turn.asked.text if turn.asked.exercise is None else turn.asked.exercise.title
    if turn.asked.follows and not turn.asked.question_id:
        what = f"{question(turn.asked.follows).question} {what}"
    return f"{what} (lesson {turn.asked.lesson}): {'; '.join(turn.missed)}"


def _told(turn: Turn) -> str:
    covered = f"{len(turn.covered)} of {len(turn.asked.points)} points"
    return f"{turn.asked.text}{_said(turn)} ({covered}, {turn.seconds:.0f} s)"


def _said(turn: Turn) -> str:
    """Repeat the number that was guessed, and put it right."""
    if turn.asked.estimate is None:
        return ""
    right = f"; it is {turn.asked.estimate.value_in_words}" if turn.missed else ""
    return f" You said {turn.said}{right}."


def _named(topic: str) -> str:
    return topic.replace("_", " ")


def _wrapped(text: str, first: str = "", then: str = "") -> str:
    return textwrap.fill(text, _WIDTH, initial_indent=first, subsequent_indent=then, break_on_hyphens=False)

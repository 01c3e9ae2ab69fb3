"""The questions of interviews as cards: turn one, tick what you covered, grade yourself."""

from __future__ import annotations

import json
from collections.abc import Callable
from importlib import resources
from pathlib import Path

from markupsafe import Markup

from amp_lessons._base.text import prose
from amp_lessons.course.interview import bank
from amp_lessons.course.interview.bank import LESSONS, LEVELS, QUESTIONS, TOPICS, Question
from amp_lessons.course.site.made import is_kept, made
from amp_lessons.course.site.making import ANSWERS
from amp_lessons.course.site.shell import Page, lesson_link

Answers = dict[str, tuple[str, str]]  # question and answer, with numbers, by the question's id

_BODY = Markup(
    """<h1>Interview questions</h1>
<p>Say the answer aloud, turn the card, tick what you covered, and grade yourself: the grade says in how many
days the card comes back. Numbers in the answers are a cell's of the course, or a data sheet's.</p>
<div id="deck" hidden>
<p><label>Topic <select id="topic"><option value="">all</option>{topics}</select></label>
<label>Level <select id="level"><option value="">all</option>{levels}</select></label>
<label>Lesson <select id="lesson"><option value="">all</option>{lessons}</select></label></p>
<p id="status" aria-live="polite"></p>
<div id="card" class="amp-card"></div>
</div>
<details><summary>All {count} questions with their answers, to be read</summary>{cards}</details>"""
)
_CARD = Markup(
    """<section class="card" data-topic="{topic}" data-level="{level}" data-lesson="{number}">
<p class="how">{words}, {level}</p>
<h3 id="card-{id}">{question}</h3><div class="answer"><p>{answer}</p>{points}
<details><summary>A weak answer, and why it is weak</summary><p>{weak}</p></details>
<p>{lesson} teaches it.</p></div></section>"""
)


def answers(kept: Path, step: Callable[[str], None]) -> Answers:
    """Return questions and answers with their numbers: proofs compute them, or they are ``kept``.

    ``step`` is called when they were computed.
    """
    read = json.loads((made("cards", _asked(), kept, step) / ANSWERS).read_text("utf-8"))
    return {id: (question, answer) for id, (question, answer) in read.items()}


def answers_to_make(kept: Path) -> int:
    """Return 1 if the answers have to be computed, 0 if they are ``kept``."""
    return 0 if is_kept("cards", _asked(), kept) else 1


def _asked() -> str:
    return "\n".join((resources.files(bank) / f"{topic}.yaml").read_text("utf-8") for topic in TOPICS)


def cards_page(told: Answers) -> Page:
    """Return the page of all cards."""
    option = Markup('<option value="{}">{}</option>').format
    body = _BODY.format(
        topics=Markup("").join(option(topic, _words(topic)) for topic in TOPICS),
        levels=Markup("").join(option(level, level) for level in LEVELS),
        lessons=Markup("").join(option(number, number) for number in LESSONS),
        count=len(QUESTIONS),
        cards=Markup("").join(_card(each, *told[each.id]) for each in QUESTIONS),
    )
    return Page("cards.html", "Interview questions", body, scripts=("cards.js",), listed="Cards")


def _card(question: Question, asked: str, answer: str) -> Markup:
    point = Markup('<li><label><input type="checkbox"> {}</label></li>').format
    return _CARD.format(
        id=question.id,
        topic=question.topic,
        level=question.level,
        number=question.lesson,
        words=_words(question.topic),
        question=prose.as_html(asked),
        answer=prose.as_html(answer),
        points=Markup("<ul>{}</ul>").format(
            Markup("").join(point(prose.as_html(each)) for each in question.points)
        ),
        weak=prose.as_html(question.weak_answer),
        lesson=lesson_link(question.lesson),
    )


def _words(topic: str) -> str:
    return topic.replace("_", " ")

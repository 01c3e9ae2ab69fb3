"""Sites for tests: the whole one with a live view and cards, and one lesson."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from filelock import FileLock

from amp_lessons import views
from amp_lessons.course.interview.bank import QUESTIONS
from amp_lessons.course.material import data, models
from amp_lessons.course.site import build as building
from amp_lessons.course.site.frames import put_frames
from amp_lessons.course.site.freezing import freeze
from amp_lessons.course.site.lesson import lesson_page
from amp_lessons.course.site.shell import address, html_of
from amp_lessons.course.site.substitutes import Shelf
from amp_lessons.course.views.base import states

ROOT = Path(__file__).parents[3]
COLUMNS = 100  # of a line of code that a page shows whole
LIVE = ("03", "live-view")


def loss_scale_view():
    """Lesson 03's view, as its cells make it."""
    import torch

    batch = data.batches(data.digits().train, batch_size=32)[0]
    return views.LossScaleView(models.digits_classifier(seed=0), batch, torch.nn.functional.cross_entropy)


def build_live(folder, kept):
    """Build a site on which the first picture moves, of all layers alone, and whose cards hold templates."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(states, "MOST_STATES", 130)
        frozen = freeze(loss_scale_view(), "-".join(LIVE))

        def only_that(number, _kept, out, _say):
            if number != LIVE[0]:
                return {}
            for name, script in frozen.scripts.items():
                (out / name).write_text(script, "utf-8")
            return {LIVE[1]: frozen.still}

        answers = {each.id: (each.question_template, each.answer_template) for each in QUESTIONS}
        patch.setattr(building, "put_frames", only_that)
        patch.setattr(building, "answers", lambda *_: answers)
        building.build(folder, kept)
    return folder


def whole_site(tmp_path_factory):
    """Return such a site: whoever asks first builds it, and all workers of a run of tests share it."""
    own = tmp_path_factory.getbasetemp()
    shared = own.parent if "PYTEST_XDIST_WORKER" in os.environ else own
    with FileLock(shared / "site.lock"):
        if not (shared / "site").exists():
            built = build_live(tmp_path_factory.mktemp("site"), tmp_path_factory.mktemp("kept"))
            built.rename(shared / "site")  # never half of one
    return shared / "site"


def build_lesson(folder, head):
    """Return a lesson's page with all of its frames, alone in a folder, or that of AMP_LESSONS_SITE."""
    if built := os.environ.get("AMP_LESSONS_SITE"):
        return Path(built).resolve() / address(head.file)
    (folder / "frames").mkdir()
    live = put_frames(head.number, ROOT / "build" / "frames", folder / "frames", print)
    return write_lesson(folder, head, live)


def write_lesson(folder, head, live):
    """Return a lesson's page, alone in a folder; of its views those in ``live`` have frames."""
    shelf = Shelf(folder, {(head.number, cell): still for cell, still in live.items()})
    page = lesson_page(head, shelf)
    building.write_assets(folder / "assets", [page])
    (folder / page.file).write_text(html_of(page, [page]), "utf-8")
    return folder / page.file

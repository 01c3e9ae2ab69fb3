"""The view of an audit: while the training runs, and afterwards; and the page of it."""

from __future__ import annotations

import math
import re
import warnings
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from amp_lessons import audit, views
from amp_lessons.audit.page.drawings import map_picture, timeline_picture
from amp_lessons.audit.report.losses import LossMap
from amp_lessons.audit.seen import AS_TRAINED
from amp_lessons.course.views import AuditView
from amp_lessons.course.views.widgets import audit as widget
from amp_lessons.course.views.widgets.audit import MOST_ROWS, audit_picture
from tests.audit.report.samples import layer_step, report
from tests.course.views.hands import written
from tests.forms import forms


def training(steps):
    """Train a little in bf16, a step at a time."""
    torch.manual_seed(0)
    model = nn.Linear(4, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(steps):
        optimizer.zero_grad()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = model(torch.randn(8, 4)).float().square().mean()
        loss.backward()
        optimizer.step()
        yield model


# --- afterwards


def test_findings_come_first_and_are_there_without_controls():
    view = AuditView(report())
    findings = view.children[0].value
    assert findings.index("clip_before_unscale") < findings.index("scaler_with_bfloat16")
    assert "clip_before_unscale" in view.stand_in()
    assert "clip_before_unscale" not in view._page.value  # not twice


def test_it_follows_the_training_at_sampled_steps_and_to_the_end(monkeypatch):
    monkeypatch.setattr(widget, "_LEAST_PAUSE_S", 0.0)
    monkeypatch.setattr(widget, "_PAUSE", 0.0)
    captions, announced = [], []
    with audit.watch(every=3) as seen:
        view = AuditView(seen)
        assert view.caption.startswith("Audit: no optimizer step was seen")
        view._page.observe(
            lambda change: (captions.append(view.caption), announced.append('"polite"' in change["new"])),
            "value",
        )
        for _ in training(8):
            pass
    counts = [int(re.search(r"in (\d+) optimizer", caption)[1]) for caption in captions]
    assert counts == [1, 4, 7, 8]
    assert announced == [False, False, False, True]
    assert seen.report.not_seen == ()


def test_it_waits_between_two_pictures_and_a_closed_view_does_not_stop_the_training(monkeypatch):
    drawn = []
    monkeypatch.setattr(widget, "_LEAST_PAUSE_S", 60.0)
    with audit.watch(every=1) as seen:
        AuditView(seen).close()
        view = AuditView(seen)
        monkeypatch.setattr(view, "refresh", lambda announced: drawn.append(view))
        assert len(list(training(20))) == 20
    assert len(drawn) == 1
    assert len(seen.steps) == 20
    assert seen.report.not_seen == ()


def test_a_choice_outlasts_the_next_picture(monkeypatch):
    monkeypatch.setattr(widget, "_LEAST_PAUSE_S", 0.0)
    with audit.watch(every=1) as seen:
        view = AuditView(seen)
        steps = training(3)
        next(steps)
        view.number_format, view.by = "fp8_e4m3", "count"
        list(steps)
    assert (view.number_format, view.by) == ("fp8_e4m3", "count")
    assert "In fp8_e4m3, by count" in view.caption


@pytest.mark.parametrize(("count", "said"), [(5, []), (7, ["the first 5 of 7 optimizers"])])
def test_optimizers_that_are_left_out_of_the_timeline_are_counted(count, said):
    step = report().steps[0]
    steps = tuple(replace(step, index=i, optimizer=i % count) for i in range(2 * count))
    loss = timeline_picture(replace(report(), steps=steps)).figure.axes[0]
    drawn = [line.get_label() for line in loss.lines if line.get_label().startswith("optimizer")]
    assert drawn == [f"optimizer {number}" for number in range(1, 6)]
    assert written(loss) == said


def test_losses_that_nobody_saw_and_steps_without_layers_are_no_obstacle():
    steps = tuple(replace(step, loss=None) for step in report().steps)
    alone = audit_picture(replace(report(), steps=steps, layers={}), AS_TRAINED, "norm").figure.axes
    assert len(alone) == 2
    assert "no loss was seen" in written(alone[0])


def test_the_map_shows_shares_where_they_are_known():
    picture = map_picture(LossMap(("a", "b"), (0, 9), ((0.5, None), (None, None)), 2))
    axes = picture.figure.axes[0]
    (image,) = axes.images
    np.testing.assert_array_equal(image.get_array().filled(np.nan), [[0.5, np.nan], [np.nan, np.nan]])
    assert [label.get_text() for label in axes.get_yticklabels()] == ["a", "b"]
    assert [label.get_text() for label in axes.get_xticklabels()] == ["1", "10"]
    assert written(axes)[:2] == ["50.0 %", "not known"]


def test_of_many_layers_those_that_lose_most_are_drawn():
    body = report().layers["body"]
    many = {f"{'a.long.name' * 5}.{i}": replace(body, name=f"{'a.long.name' * 5}.{i}") for i in range(60)}
    picture = audit_picture(replace(report(), layers=many), "fp16", "norm")
    (axes,) = (each for each in picture.figure.axes if each.images)
    labels = [label.get_text() for label in axes.get_yticklabels()]
    assert len(labels) == MOST_ROWS
    assert all(label.startswith("…") and len(label) <= 34 for label in labels)
    assert "the 24 that lose most, of 60 layers" in written(axes)


def test_the_page_stands_alone_with_findings_before_pictures_and_those_before_their_tables():
    page = views.audit_page(report())
    assert page.startswith('<!doctype html>\n<html lang="en"')
    assert not re.search(r"<(script|link|iframe)\b", page)
    images = re.findall("<img [^>]*>", page)
    assert images
    assert all('src="data:image/png;base64,' in each and '." class=' in each for each in images)
    # a link is followed only when asked, and a filter of the page's own is within it
    loaded = re.sub(r'base64,[^"]+|<a href="https://[^"]+"|url\("data:[^"]*"\)', "", page)
    assert not re.search(r"https?://|url\(|@import", loaded)
    steps = page[page.index("<h2>Steps") :]
    order = [steps.index(part) for part in ("<img", "<table", "<h2>Layers", "<h2>What a cast", "<details")]
    assert order == sorted(order)
    assert page.index("clip_before_unscale") < page.index("<img")


def test_a_page_of_gradients_that_are_all_zero_or_nan_is_drawn_without_a_warning():
    for dead in (torch.zeros(3), torch.full((3,), math.nan)):
        seen = layer_step(0, dead)
        layers = {"dead": replace(report().layers["body"], history=(seen, replace(seen, step=2)))}
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            html = views.audit_page(replace(report(), layers=layers))
        assert "every gradient was 0, inf or NaN already" in html


def test_the_page_of_what_was_seen_so_far():
    with audit.watch(every=1) as seen:
        assert "no optimizer step was seen" in views.audit_page(seen)
        list(training(1))
        assert "no mistake seen in 1 optimizer step" in views.audit_page(seen)


def test_words_of_the_training_are_no_markup_on_the_page():
    layers = {"<i>x</i>": replace(report().layers["body"], name="<i>x</i>")}
    hostile = views.audit_page(replace(report(), of="<script>", ended="<b>", layers=layers))
    assert not re.search("<(script|b|i)>", hostile)


def test_findings_alone_in_each_form(golden):
    golden("findings_alone.txt", forms(views.AuditFindings(report())))


def test_an_audit_that_found_nothing_says_so_in_a_line():
    shown = views.AuditFindings(replace(report(), findings=()))._repr_mimebundle_()
    said = "Audit of train.py: no mistake seen in 4 optimizer steps, RuntimeError at model.py:12"
    assert shown["text/plain"] == said
    assert shown["text/markdown"] == f"**{shown['text/plain']}**"
    assert "Findings" not in shown["text/html"]

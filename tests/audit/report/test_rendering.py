"""The report as people read it."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ElementTree
from dataclasses import asdict, replace

import pytest
import torch

from amp_lessons import audit
from amp_lessons.audit import Finding, Report, Sighting, catalogue
from amp_lessons.audit.report import finding, rendering
from amp_lessons.audit.seen import LayerSeen, PrecisionSeen
from amp_lessons.course.site import explain as site_explain
from tests.audit.report.samples import BF16, CLIPPED, layer_step, report
from tools import address

GOLDEN = """\
Audit of train.py: 1 mistake in 4 optimizer steps
What it costs: the weights get other updates than they should
(`clip_before_unscale`).
What ran: fp16 autocast, weights in fp32 and bf16, scaler on, 1 of 4 steps
skipped.

Findings
  ✗ clip_before_unscale: the gradients were clipped while they were scaled
    at: train.py:31  `clip_grad_norm_(model.parameters(), 1.0)`
    seen: 40 times, first at step 1
    cure: call scaler.unscale_(optimizer) first
    lesson: 04 explains it
  ! scaler_with_bfloat16: bf16 needs no `GradScaler`
    likely: autocast ran in bf16; once, at step 1
    lesson: 03 explains it

How it ended
  RuntimeError: mat1 and mat2 must have the same dtype, but got Float and Half
    EXPLAINED
    lesson: 02 explains it

The first inf or NaN
  In `head` (Addmm), in the forward pass before step 2.
  How it grew, from one module to the next
  module    kind  largest magnitude  dtype
  body    Linear              6·10⁴   fp16
  head    Linear                inf   fp16

Steps
  The loss scale: 2⁴, 2³ from step 3.
  Skipped steps: 2.
  Lost updates: the fraction of the weights with a gradient that a step left
  exactly as they were.
  What each optimizer was asked for, and what came of it, from first to last
  optimizer  steps     skipped      loss  gradient norm  lost updates
  1              4  1 (25.0 %)  2 → 1.25        1 → 0.5        50.0 %

Layers, the worst first
  Over all steps that were looked at.
  Lost updates: the fraction of the weights with a gradient that a step left
  exactly as they were.
  Some of those that are already 0 may have underflowed in the backward pass.
    unusual dtypes: weight bf16, in `body`
  As trained: the fraction of the gradients, and of their norm, that became zero
  layer  already 0  fp16, as trained  lost updates
  body           0   33.3 % / <0.1 %        50.0 %
  head           0             0 / 0        75.0 %

What a cast to another format would lose
  Fraction of each layer's gradient, by norm, that a cast would make zero
  layer    fp16  bf16
  body   <0.1 %     0
  head        0     0

Not seen
  a model runs as compiled code.

How this was found
  Every step was listened to; 2 of 4 were looked at closely, every 2nd of each
  optimizer.
  amp-lessons 0.3.0, PyTorch 2.13.0, Python 3.11.7 on a CPU,
  2026-11-22T17:20:20+00:00.
  [measured] The training took 12.5 s with the audit, which spent 0.8 s of them
  around the optimizers' steps."""


def test_the_text_of_a_report():
    text = re.sub(r"    means: .*?(?=    lesson: 02)", "    EXPLAINED\n", str(report()), flags=re.DOTALL)
    assert text.replace(" \n", "\n") == re.sub(r" +\n", "\n", GOLDEN)


def test_no_line_is_longer_than_a_terminal_is_wide():
    """A path and a line of code stay in one piece, for they are copied."""
    long = {f"{'encoder.layers.' * 4}{i}.self_attention.output": report().layers["body"] for i in range(30)}
    named = {name: replace(layer, name=name) for name, layer in long.items()}
    text = str(replace(report(), layers=named))
    assert [line for line in text.splitlines() if len(line) > 80 and "at: " not in line] == []
    assert ".layers.0.self_attention.output" in text


def test_the_answer_comes_first_and_what_costs_most_before_the_rest():
    first, second, *_ = str(report()).splitlines()
    assert first == "Audit of train.py: 1 mistake in 4 optimizer steps"
    assert second == "What it costs: the weights get other updates than they should"
    slow = Sighting(**asdict(catalogue.precision.no_autocast("the forward pass", "fp16")))
    unsure = Sighting(**asdict(catalogue.steps.no_step()), likely="it never stepped")
    both = replace(report(), findings=(unsure, CLIPPED, slow)).to_dict()
    (said,) = rendering.costs(both)
    assert said.startswith(
        "What it costs: perhaps the training learns nothing, or ends (`no_step`); the weights"
    )
    assert said.endswith("what mixed precision is for is not gained (`no_autocast`).")
    assert not list(rendering.costs(replace(report(), findings=()).to_dict()))


SECTIONS = (
    *("1 mistake", "Findings", "How it ended", "The first inf", "Steps", "Layers"),
    *("What a cast", "Not seen", "How this"),
)
KEYS = ("passed", "findings", "ended", "first_nonfinite", "steps", "layers", "not_seen", "how")


@pytest.mark.parametrize("form", [str, Report.as_markdown, Report.as_html, Report.as_json])
def test_all_forms_say_it_in_one_order(form):
    said = str(form(report()))
    asked = [f'"{key}"' for key in KEYS] if form is Report.as_json else SECTIONS
    places = [said.index(each) for each in asked]
    assert places == sorted(places)


def test_a_clean_report_is_short():
    assert str(Report(findings=())) == "Audit: no optimizer step was seen"
    clean = Report(findings=(BF16,), steps=report().steps[:1])
    assert str(clean).splitlines()[0] == "Audit: no mistake seen in 1 optimizer step"
    assert "looked at closely, every single one of each optimizer" in " ".join(str(clean).split())


def test_markdown_says_the_same_and_means_nothing_by_accident():
    markdown = report().as_markdown()
    assert markdown.startswith(
        "**Audit of train.py: 1 mistake in 4 optimizer steps**\n\nWhat it costs: the weights get other "
        "updates than they should (`clip_before_unscale`).\n\nWhat ran: fp16 autocast, weights in fp32 "
        "and bf16, scaler on, 1 of 4 steps skipped.\n\n**Findings**\n\n- ✗ "
    )
    assert "*Cure:* call scaler.unscale\\_(optimizer) first\\\n" in markdown
    assert "| body | 0 | 33.3 % / \\<0.1 % | 50.0 % |" in markdown
    assert "| body | \\<0.1 % | 0 |" in markdown
    assert "*unusual dtypes:* weight bf16, in `body`" in markdown


def test_html_is_well_formed_and_nothing_in_it_is_markup_but_ours():
    hostile = replace(CLIPPED, message="<script>alert(1)</script>", code="a&b")
    html = replace(report(), findings=(hostile,), of="<b>.py").as_html()
    tree = ElementTree.fromstring(str(html).replace("<br>", "<br/>"))
    assert tree.tag == "section"
    assert {element.tag for element in tree.iter()}.isdisjoint({"script", "b"})
    heads = [element.text for element in tree.iter("h4")]
    assert heads[:4] == ["Findings", "How it ended", "The first inf or NaN", "Steps"]
    assert all(element.get("scope") in ("col", "row") for element in tree.iter("th"))


def test_a_code_leads_to_its_place_on_the_site():
    (found,) = re.findall(r'<a href="([^"]+)"><code>clip_before_unscale</code></a>', report().as_html())
    page = site_explain.explain_page()
    assert found == f"{address.read().pages}{page.file}#code-clip_before_unscale"
    assert 'id="code-clip_before_unscale"' in page.body


def test_notebooks_get_all_three():
    bundle = report()._repr_mimebundle_()
    assert set(bundle) == {"text/plain", "text/markdown", "text/html"}
    assert bundle["text/plain"] == str(report())


def test_a_finding_of_a_check_keeps_its_own_heading():
    plain = Finding("closure", "failed", "a closure was given", "leave it out")
    seen = Sighting("closure", "failed", "a closure was given", "leave it out")
    assert finding.text_lines(plain) == ["  ✗ closure: a closure was given", "    try: leave it out"]
    assert "    cure: leave it out" in finding.text_lines(seen)


def test_a_line_of_code_with_backticks_stays_one_piece():
    place = replace(CLIPPED.place, source="print(f'`{x}`')")
    assert "`print(f''{x}'')`" in finding.as_markdown(replace(CLIPPED, place=place))


def test_many_layers_are_told_by_the_worst():
    body = report().layers["body"]
    many = {f"layer{i}": replace(body, name=f"layer{i}") for i in range(30)}
    text = str(replace(report(), layers=many))
    assert "layer0 " in text
    assert "layer29" not in text
    assert "18 more layers lose no more." in text


def test_an_exception_that_nobody_knows_is_told_how_to_go_on():
    from amp_lessons.audit import explain

    error = ValueError("no data")
    text = str(replace(report(), ended="ValueError: no data", explanation=explain(error)))
    assert "  ValueError: no data\n    means: This is not among" in text
    assert "    look: Run the same" in text


def test_an_overflow_that_the_scaler_met_is_called_that():
    found = replace(report().first_nonfinite, recovered=True, phase="backward")
    assert "recovered: the scaler skipped that step" in str(replace(report(), first_nonfinite=found))


@pytest.mark.parametrize(
    ("ran", "said"),
    [
        (PrecisionSeen(), "no autocast"),
        (PrecisionSeen(autocast_off=True), "autocast asked for, and switched off"),
        (PrecisionSeen((torch.float16,)), "fp16 autocast, no scaler"),
        (
            PrecisionSeen((torch.float16,), autocast_off=True, scaler_off=True),
            "fp16 autocast, scaler switched off",
        ),
        (PrecisionSeen((torch.bfloat16,)), "bf16 autocast"),
        (PrecisionSeen((torch.bfloat16, torch.float16), scaler=True), "bf16 and fp16 autocast, scaler on"),
    ],
)
def test_the_second_line_says_in_which_precision_the_training_ran(ran, said):
    step = replace(report().steps[0], scale=1.0)
    lines = str(Report(findings=(), steps=(step,), precision=ran)).splitlines()
    assert lines[1] == f"What ran: {said}."


def test_a_layer_without_any_gradient_but_0_has_nothing_left_to_lose():
    zeros = replace(layer_step(0, torch.zeros(3)), zero_fraction=1.0)
    dead = Report(findings=(), steps=report().steps[:1], layers={"dead": LayerSeen("dead", 3, {}, (zeros,))})
    rows = [line.split() for line in str(dead).splitlines() if line.startswith("  dead")]
    assert rows == [["dead", "100", "%", "–", "75.0", "%"], ["dead", "–", "–"]]


def test_what_a_module_was_given_is_not_called_by_the_name_of_a_module():
    first = replace(report().first_nonfinite, module="input of head")
    text = str(replace(report(), first_nonfinite=first))
    assert "In the input of `head` (Addmm), in the forward pass before step 2." in text


@pytest.mark.parametrize(("dtype", "may"), [(torch.float16, True), (torch.bfloat16, False)])
def test_zeros_are_called_an_underflow_only_in_a_format_that_underflows(dtype, may):
    model = torch.nn.Linear(4, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with audit.watch(model) as seen:
        with torch.autocast("cpu", dtype):
            loss = model(torch.tensor([[1.0, 2.0, 0.0, 0.0]])).float().square().mean()
        loss.backward()
        optimizer.step()
    assert ("underflowed in the backward pass" in str(seen.report)) == may


def test_the_first_inf_or_nan_is_printed_as_the_report_says_it():
    assert str(report().first_nonfinite) in GOLDEN

"""The phases of a training step as a picture: they are those that ``AmpCycle`` performs, in its order."""

from __future__ import annotations

import torch

from amp_lessons import views
from amp_lessons.course.material import models
from amp_lessons.course.views.widgets.scaled_step import LINES
from amp_lessons.formats.dtypes import dtype_name
from amp_lessons.scaling import PHASES, AmpCycle, make_scaler
from tests.course.views import samples
from tests.course.views.conftest import faults_for_a_phone


def test_each_phase_of_a_step_stands_below_the_line_that_performs_it():
    assert tuple(phase.name for phases in LINES.values() for phase in phases) == PHASES
    texts = [text.get_text() for text in views.scaled_step().picture.figure.axes[0].texts]
    assert {*LINES, *PHASES, "skip"} <= {*texts}


def test_what_a_phase_makes_has_the_dtype_that_is_drawn():
    model = models.digits_classifier(16)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    cycle = AmpCycle(
        model, samples.batches(), optimizer, torch.nn.functional.cross_entropy, scaler=make_scaler("cpu")
    )
    made = {"forward": "output", "scale": "scaled_loss", "backward": "output_gradient", "unscale": "gradient"}
    seen = {name: dtype_name(cycle.advance().dtypes[key]) for name, key in made.items()}
    assert seen == {phase.name: phase.dtype for phases in LINES.values() for phase in phases if phase.dtype}


def test_for_a_phone_the_phases_stand_one_below_the_other():
    assert list(faults_for_a_phone(views.scaled_step().picture.narrow)) == []

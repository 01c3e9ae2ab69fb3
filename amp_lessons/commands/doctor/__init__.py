"""``amp-lessons doctor``: what this machine can do, what the lessons show on it, what mends what is missing.

``facts`` asks the machine, ``diagnosis`` judges what it answered, ``report`` puts both into words.
"""

from __future__ import annotations

import argparse

from amp_lessons.commands.doctor.diagnosis import diagnose
from amp_lessons.commands.doctor.facts import gather
from amp_lessons.commands.doctor.report import write_report


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add no options: the doctor looks at everything."""


def run(args: argparse.Namespace) -> int:
    """Print the examination; 1 if something that the course needs is broken, else 0."""
    facts = gather()
    symptoms = diagnose(facts)
    print(write_report(facts, symptoms))
    return int(any(symptom.severity == "problem" for symptom in symptoms))

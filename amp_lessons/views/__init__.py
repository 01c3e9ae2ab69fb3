"""Everything that is drawn: figures first, widgets around them.

Names load when they are first used, so that importing this package costs neither matplotlib nor ipywidgets.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

_WHERE = {
    "BitView": "widgets.bits",
    "RulerView": "widgets.ruler",
    "OutlierView": "widgets.blocks",
    "UpdateView": "widgets.errors",
    "product_errors": "widgets.errors",
    "CalculatorView": "widgets.calculator",
    "RooflineView": "widgets.roofline",
    "roofline_of": "widgets.roofline",
    "source_table": "widgets.sources",
    "Table": "base.tables",
    "format_table": "base.tables",
    "LossScaleView": "widgets.loss_scale",
    "CensusView": "widgets.loss_scale",
    "RaceView": "widgets.race",
    "ScalerView": "widgets.scaler",
    "CycleView": "widgets.cycle",
    "AtlasView": "widgets.atlas",
    "LedgerView": "widgets.ledger",
    "MemoryView": "widgets.memory",
    "activation_stack": "widgets.memory",
    "step_memory": "widgets.memory",
    "Play": "widgets.play",
    "Quiz": "widgets.quiz",
    "ExerciseCard": "widgets.exercise",
    "check": "widgets.checked",
    "Still": "widgets.still",
    "curves": "widgets.still",
}

__all__ = sorted(_WHERE)


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(
            f"module 'amp_lessons.views' has no attribute {name!r}; it has {', '.join(__all__)}"
        )
    return getattr(import_module(f"{__name__}.{_WHERE[name]}"), name)


def __dir__() -> list[str]:
    return __all__

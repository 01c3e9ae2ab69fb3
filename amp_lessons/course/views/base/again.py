"""A cell that is run again in the same kernel: its view goes on where the learner left it.

Shift+Enter makes every view of the cell anew. One that begins as the view before did, shown by the same code,
takes over what was set and pressed in that. Whoever changes the code or restarts the kernel begins anew.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import ipywidgets
from IPython.core.getipython import get_ipython

from amp_lessons.course.views.base.controls import Field, Slider

V = TypeVar("V", bound=ipywidgets.Widget)
Beginning = tuple[tuple[str, Any], ...]  # of each control its name, and where it stands

_CONTROLS = (Slider, Field, ipywidgets.Dropdown, ipywidgets.Checkbox)
_LAST: dict[tuple[str, type, Beginning], Any] = {}


def go_on(view: V, take_over: Callable[[V], None]) -> None:
    """Call ``take_over`` with the view that was shown last in the place of ``view``, if there is one."""
    code = code_of_cell()
    if not code:
        return
    controls = controls_of(view, _CONTROLS)  # a list stands at a place, as its values may be any
    stand = ((_name(each), each.index if _is_list(each) else each.value) for each in controls)
    key = (code, type(view), tuple(stand))
    before, _LAST[key] = _LAST.get(key, view), view
    if before is not view:
        take_over(before)


def code_of_cell() -> str:
    """Return the code that runs now, as the learner wrote it; nothing where there are no cells."""
    shell = get_ipython()
    return str(shell.user_ns["In"][-1]) if shell is not None and shell.user_ns.get("In") else ""


def controls_of(widget: ipywidgets.Widget, kinds: tuple[type, ...]) -> Iterator[Any]:
    """Yield what is of these ``kinds`` below a widget, from top to bottom; nothing below such a one."""
    for child in getattr(widget, "children", ()):
        if isinstance(child, kinds):
            yield child
        else:
            yield from controls_of(child, kinds)


def copy_controls(before: V, now: V, parts: type[V]) -> None:
    """Set the controls of ``now`` as those of ``before`` stand; ``parts`` are views, which take over alone.

    What is below ``now`` is asked for each time: a list that is set may bring other controls.
    """
    kinds = (*_CONTROLS, parts)
    for place, left in enumerate(controls_of(before, kinds)):
        found = list(controls_of(now, kinds))
        if place >= len(found):
            return
        if isinstance(left, parts) and isinstance(found[place], parts):
            found[place].take_over(left)
        elif not _name(left) or _name(left) != _name(found[place]):
            continue
        elif not _is_list(left):
            found[place].value = left.value
        elif found[place].options == left.options:
            found[place].index = left.index


def _name(control: Any) -> str:
    """Return what stands beside a control; nothing beside a view. (The label of a list is what is chosen.)"""
    return str(getattr(control, "description", "") or getattr(control, "label", ""))


def _is_list(control: Any) -> bool:
    return isinstance(control, ipywidgets.Dropdown)

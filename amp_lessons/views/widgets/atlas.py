"""The atlas: what autocast does to every operation on every device, to be searched and filtered."""

from __future__ import annotations

from markupsafe import Markup

from amp_lessons import autocast
from amp_lessons.text.marks import COMPUTED_MARK
from amp_lessons.views.base.controls import ControlValue, dropdown, row, text_field
from amp_lessons.views.base.view import View
from amp_lessons.views.figures.atlas import DEVICE_NAMES, atlas_html, atlas_picture

ANY_RULE = "any"


class AtlasView(View):
    """A table of operation × device, asked of the installed PyTorch; live, a real table and no picture."""

    search = ControlValue[str]("_search", "What is searched for; setting it is typing it.")
    rule = ControlValue[str]("_rule", "Which rule is shown: one of autocast.RULES, or any.")
    device_type = ControlValue[str]("_device", "The device that ``rule`` and the sentence are about.")
    differing = ControlValue[bool]("_differing", "Whether only differences of CUDA and CPU are shown.")

    def __init__(self, search: str = "", *, rule: str = ANY_RULE, differing: bool = False) -> None:
        """Show the operations whose name contains ``search``, filtered as the controls say."""
        self._search = text_field("search", search, placeholder="norm, softmax, mul …")
        self._rule = dropdown("rule", [ANY_RULE, *autocast.RULES], rule)
        self._device = dropdown("on", [(name, device) for device, name in DEVICE_NAMES.items()], "cuda")
        shown = [("all operations", False), ("only where CUDA and CPU differ", True)]
        self._differing = dropdown("show", shown, differing)
        controls = [self._search, self._rule, self._device, self._differing]
        super().__init__([row(*controls)], alt="Table.")
        self._refresh()
        for control in controls:
            control.observe(lambda _: self._refresh(), "value")

    @property
    def found(self) -> tuple[autocast.Operation, ...]:
        """The operations in the table."""
        rule = None if self.rule == ANY_RULE else self.rule
        return autocast.operations(
            self.search, rule=rule, device_type=self.device_type, differing=self.differing
        )

    def page_html(self) -> Markup:
        """Return the table itself, which can be read aloud and copied; a picture of it could not."""
        return atlas_html(self.found, self.caption)

    def _refresh(self) -> None:
        found = self.found
        # How many there are depends on PyTorch's version, and on whether it was built for CUDA.
        self.show(atlas_picture(found), self._describe(found), mark=COMPUTED_MARK)

    def _describe(self, found: tuple[autocast.Operation, ...]) -> str:
        """Count what was found; explain the operation if it was named, or say which names are near."""
        total = len(autocast.operations())
        count = f"{len(found)} of the {total} operations that some device lists{self._filters()}"
        if not self.search.strip():
            return f"{count}."
        try:
            sentence = autocast.explain(self.search.strip(), self.device_type)
        except ValueError as error:
            return f"{count}: their names contain {self.search!r}." if found else str(error)
        listed = sum(set(operation.rules.values()) != {autocast.UNLISTED} for operation in found)
        return (
            f"{sentence} (In the table: {listed} of the {total} operations "
            f"that some device lists{self._filters()}.)"
        )

    def _filters(self) -> str:
        """Say what the dropdowns leave out."""
        rule = "" if self.rule == ANY_RULE else f", only {self.rule!r} on {DEVICE_NAMES[self.device_type]}"
        return rule + (", only where CUDA and CPU differ" if self.differing else "")

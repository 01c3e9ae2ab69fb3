"""Controls of a view, moved on a page by keyboard, mouse or touch, and whether the view then answers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import partial

from playwright.sync_api import Locator, expect

# What a view shows beside its controls; a promise of whether that becomes something else.
WATCH = """place => {
  const shown = () => {
    const copy = place.cloneNode(true);
    copy.querySelectorAll(".amp-slider, .amp-dropdown-widget").forEach((each) => each.remove());
    return copy.innerHTML;
  };
  const before = shown();
  window.ampAnswered = new Promise((done) => {
    const observer = new MutationObserver(() => shown() !== before && done(true));
    observer.observe(place, { subtree: true, childList: true, characterData: true, attributes: true });
    setTimeout(() => done(false), 60_000);
  });
}"""


WHOLE = "each => each.outerHTML"


def silent_controls(places: Iterable[Locator], name: str, ways: Sequence[str]) -> list[tuple[str, ...]]:
    """Move each control of each view in each of some ways; name those after which nothing changes.

    ``name`` is the attribute that a view is called by.
    """
    silent = []
    for place in places:
        for control in place.locator("input[type=range], input[type=checkbox], select, textarea").all():
            if not control.is_visible() or not control.is_enabled():
                continue
            for how in ways:
                if not answers(place, control, partial(_move_of(control), control, how)):
                    silent.append((place.get_attribute(name) or "", how, control.evaluate(WHOLE)))
    return silent


def _move_of(control: Locator) -> Callable[[Locator, str], None]:
    if control.evaluate("each => each.matches('select')"):
        return choose
    return tick if control.evaluate("each => each.type === 'checkbox'") else slide


def answers(place: Locator, control: Locator, act: Callable[[], None]) -> bool:
    """Whether picture or caption change once a control is moved, and what a slider says of itself."""
    place.evaluate(WATCH)
    before = control.get_attribute("aria-valuetext")
    act()
    answered: bool = place.page.evaluate("window.ampAnswered")
    if before is not None:  # what changed first may be what an earlier control has done
        with suppress(AssertionError):
            expect(control).not_to_have_attribute("aria-valuetext", before)
            return answered
    return answered and before is None


def slide(slider: Locator, how: str) -> None:
    """Move a slider by keyboard, or by mouse or touch to the half of it where it is not."""
    low, high, value = (int(each) for each in slider.evaluate("each => [each.min, each.max, each.value]"))
    is_right = value > (low + high) / 2
    if how == "keyboard":
        slider.press("ArrowLeft" if is_right else "ArrowRight")
        return
    box = slider.bounding_box()
    there = {"x": box["width"] * (0.1 if is_right else 0.9), "y": box["height"] / 2}
    slider.click(position=there) if how == "mouse" else slider.tap(position=there)


def choose(chosen: Locator, how: str) -> None:
    """Choose the next of a list, or the first: by mouse and touch it is opened before."""
    if how == "mouse":
        chosen.click()
    if how == "touch":
        chosen.tap()
    is_last = chosen.evaluate("each => each.selectedIndex === each.options.length - 1")
    chosen.press("Home" if is_last else "ArrowDown")
    if how != "keyboard":
        chosen.press("Enter")


def tick(box: Locator, how: str) -> None:
    """Tick a box, or take its tick away."""
    if how == "keyboard":
        box.press("Space")
    else:
        box.click() if how == "mouse" else box.tap()

"""What every view of the course is: controls, a picture, and a caption that says the same in words."""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, ClassVar

import ipywidgets
from markupsafe import Markup

from amp_lessons._base.drawing.picture import Picture, picture_html, sentence_html
from amp_lessons._base.text.words import superscripts
from amp_lessons.course.views.base.controls import Field, align_sliders
from amp_lessons.course.views.base.shown import Shown


class View(Shown):
    """Controls above a picture with its caption.

    With a kernel it is a widget. Without one (GitHub, nbconvert, an untrusted notebook) its output shows the
    picture as a PNG that carries the caption, and as text it is the caption.

    On the pages of the site (``states``) those of its sliders and lists move that ``on_pages`` names, as
    attributes, the most telling first. None means all that there are, ``()`` that it stands there as a
    picture; ``why_still`` says why.
    """

    on_pages: ClassVar[tuple[str, ...] | None] = None
    why_still: ClassVar[str] = ""
    in_short = ""  # a verdict on what the picture shows, on a line of its own
    _held = False  # while several controls are set, one after the other

    def __init__(self, controls: Sequence[ipywidgets.Widget], alt: str) -> None:
        """Lay out ``controls`` above an empty picture; ``alt`` says in a phrase what the picture is of."""
        self._alt = alt
        self._page = self.new_page()
        self._picture: Picture | None = None
        self._caption = ""
        self._mark = ""
        self._announced = True
        self._is_working = False
        align_sliders(controls)
        super().__init__([*controls, self._page])

    @property
    def caption(self) -> str:
        """Return what the picture shows, in words."""
        return self._caption

    @property
    def page(self) -> Any:
        """Return the widget that picture and caption are shown in."""
        return self._page

    @property
    def picture(self) -> Picture | None:
        """Return the picture on the page, if there is one yet."""
        return self._picture

    def show(self, picture: Picture, caption: str, *, mark: str = "", announced: bool = True) -> None:
        """Put ``picture`` and ``caption`` on the page, together.

        ``mark``, one of ``_base.text.words``, is what a caption begins with as text when its figures
        may differ elsewhere. A caption that changes many times a second is better not ``announced``: a screen
        reader would speak of nothing else.
        """
        self._picture, self._caption, self._mark = picture, superscripts(caption), mark
        self._announced, self._is_working = announced, False
        self.turn_page()

    def new_page(self) -> Any:
        """Return the widget that picture and caption are shown in."""
        return ipywidgets.HTML()

    def turn_page(self) -> None:
        """Bring the page up to date with the picture, if there is one, and with the caption."""
        self._page.value = self._drawn_html()

    def stand_in(self) -> Markup:
        """Return what is on the page; a view that has more below its page adds that."""
        return self._drawn_html()

    def _drawn_html(self) -> Markup:
        """Return picture and caption, or the caption where there is no picture yet."""
        return self.page_html() if self._picture else sentence_html(self._caption)

    @property
    def alt(self) -> str:
        """Return what is said of the picture to those who cannot see it."""
        return f"{self._alt} {self._caption}"

    def page_html(self) -> Markup:
        """Return what a live view shows: the picture and its caption, unless a view knows better."""
        assert self._picture is not None
        return picture_html(
            self._picture,
            self._caption,
            self.alt,
            in_short=self.in_short,
            faded=self.is_outdated,
            announced=self._announced,
        )

    @property
    def is_outdated(self) -> bool:
        """Whether the picture shows something else than the controls ask for."""
        return self._is_working

    def begin_work(self, words: str) -> None:
        """Fade the picture and say that ``words`` are worked on; ``show`` brings what came of it.

        Whatever answers a control noticeably later than it was moved begins with this, so that no picture
        contradicts its control unmarked.
        """
        self._is_working, self.in_short = True, ""
        self.say(f"{words}: working …")

    def say(self, sentence: str) -> None:
        """Keep the picture and replace its caption: what an input that cannot be used is answered with."""
        self._caption, self._mark, self._announced = superscripts(sentence), "", True
        self.turn_page()

    def follow(self, draw: Callable[[], None], *controls: ipywidgets.Widget) -> None:
        """Call ``draw`` whenever one of ``controls`` changes; what goes wrong is answered in words.

        A view that draws once before it follows raises what is wrong with its arguments.
        """

        def changed(_change: object) -> None:
            if not self._held:
                with self.answering():
                    draw()

        for control in controls:
            control.observe(changed, "value")

    @contextmanager
    def held(self) -> Iterator[None]:
        """Let several controls change inside the block, and follow none of them."""
        self._held = True
        try:
            yield
        finally:
            self._held = False

    @contextmanager
    def answering(self, field: Field | None = None) -> Iterator[None]:
        """Turn an error about the learner's input into words, so that the view lives on.

        They stand at the ``field`` that was typed into, which is marked until it is mended; without a field,
        or where there is no picture yet, they are the caption.
        """
        try:
            yield
        except (ValueError, TypeError) as error:
            if field is not None:
                field.error = str(error)
            if field is None or self._picture is None:
                self.say(str(error))
        else:
            if field is not None:
                field.error = ""

    def stored(self) -> dict[str, str]:
        """Return the caption as text, and the picture with it."""
        return {"text/plain": f"{self._mark} {self._caption}".lstrip(), **self.stored_picture(self._caption)}

    def stored_picture(self, caption: str) -> dict[str, str]:
        """Return the picture as a PNG that carries ``caption``; nothing where there is none."""
        if self._picture is None:
            return {}
        return {"image/png": base64.b64encode(self._picture.png(caption)).decode()}

"""How fast a GPU lets a language model write, for one text and for many at once; nobody has to own it."""

from __future__ import annotations

from matplotlib.figure import Figure

from amp_lessons._base.drawing.picture import Picture
from amp_lessons._base.drawing.style import ACCENT, INK, PAPER, QUIET, ZONES, house_style
from amp_lessons._base.text.words import memory, three_digits
from amp_lessons.course.bench.calculator import DECODERS, LARGEST_SIZE, decoding
from amp_lessons.course.bench.workloads import MissingExtraError
from amp_lessons.course.views.base.controls import ControlValue, dropdown, row, text_field
from amp_lessons.course.views.base.view import View
from amp_lessons.formats import parse_whole
from amp_lessons.measure import GPUS, Served

WEIGHTS = {"16 bits": 16, "INT8, groups of 32": 8, "INT4, groups of 32": 4}
CACHES = {"16 bits": 2, "fp8": 1}


class DecodingView(View):
    """Choose a model, how it is stored, and a GPU: bytes, and tokens per second by how many write at once."""

    on_pages = ()
    why_still = "each model and length is a prediction of seconds"

    model = ControlValue[str]("_model", "The name of a model, one of ``bench.calculator.DECODERS``.")
    context = ControlValue[int | str]("_context", "How many tokens stand before the next one, as typed.")
    bits = ControlValue[int]("_bits", "Bits of a weight in the blocks: 16, 8 or 4.")
    cache_itemsize = ControlValue[int]("_cache", "Bytes of a number in the cache: 2 or 1.")
    gpu = ControlValue[str]("_gpu", "The GPU's name, one of ``measure.GPUS``.")

    def __init__(
        self,
        model: str = "Llama 3 8B",
        *,
        context: int | str = 4096,
        bits: int = 16,
        cache_itemsize: int = 2,
        gpu: str = "H100 SXM",
    ) -> None:
        """Begin with ``model`` after ``context`` tokens, stored in ``bits``, on ``gpu``."""
        self._served: Served | None = None
        self._model = dropdown("model", list(DECODERS), model)
        self._context = text_field("tokens before", str(context))
        self._bits = dropdown("weights in", list(WEIGHTS.items()), bits)
        self._cache = dropdown("cache in", list(CACHES.items()), cache_itemsize)
        self._gpu = dropdown("GPU", list(GPUS), gpu)
        controls = [self._model, self._context, self._bits, self._cache, self._gpu]
        super().__init__(
            [row(*controls)], alt="Tokens per second over how many sequences are written at once."
        )
        self._ask()
        self.follow(self._ask, *controls)

    @property
    def served(self) -> Served | None:
        """The answer that is shown; None if there is none for what was typed."""
        return self._served

    @property
    def is_outdated(self) -> bool:
        """Whether the picture is still that of an earlier choice."""
        return self._served is None

    def _ask(self) -> None:
        self._served = None
        try:
            with self.answering(self._context):
                context = parse_whole(self.context, "The number of tokens", LARGEST_SIZE)
                self.begin_work(f"{self.model} after {context:,} tokens")
                found = decoding(DECODERS[self.model], context)
                self._served = found.on(GPUS[self.gpu], bits=self.bits, cache_itemsize=self.cache_itemsize)
                self.show(decoding_picture(self._served), describe(self.model, self._served))
        except MissingExtraError as error:
            self.say(str(error))
        if self._served is None:
            self.turn_page()  # the picture is of an earlier choice, and is faded


def describe(name: str, served: Served) -> str:
    """Say what a model takes and how fast it can write, alone and with as many others as fit."""
    found, fit = served.decoding, served.largest_batch
    stored = next(words for words, bits in WEIGHTS.items() if bits == served.bits)
    cached = next(words for words, itemsize in CACHES.items() if itemsize == served.cache_itemsize)
    alone = f"at most {three_digits(served.tokens_per_s())} tokens per second"
    several = (
        f"{fit:,} {'sequence fits' if fit == 1 else 'sequences fit'}: together at most "
        f"{served.tokens_per_s(fit):,.0f}"
        if fit
        else "Not even one fits beside the weights"
    )
    return (
        f"{name} on the {served.sheet.name}, weights in {stored}, cache in {cached}, after "
        f"{found.context:,} tokens, computed (no GPU needed): weights {memory(served.weight_bytes)}, cache "
        f"{memory(found.cached_per_token * served.cache_itemsize)} a token, {memory(served.cache_bytes)} a "
        f"sequence. One sequence: {alone}. {several}. Memory bounds the products with weights below "
        f"{served.compute_bound_from:,} sequences, arithmetic from there on; each cache is read for its "
        "sequence alone."
    )


def decoding_picture(served: Served) -> Picture:
    """Draw the bound over the number of sequences, what does not fit, and where arithmetic bounds."""
    most = 4 * max(served.compute_bound_from, served.largest_batch, 1)
    batches = sorted({round(most ** (place / 60)) for place in range(61)})
    with house_style():
        figure = Figure(figsize=(9, 3.1))
        axes = figure.add_axes((0.1, 0.18, 0.87, 0.74))
        axes.loglog(batches, [served.tokens_per_s(batch) for batch in batches], color=ACCENT, lw=2)
        overflow = ZONES["overflowed"]
        first = max(served.largest_batch, 0.9)
        axes.axvspan(
            first, most, facecolor="none", edgecolor=overflow.colour, hatch=overflow.hatch, alpha=0.3
        )
        axes.text(first, 0.04, " does not fit ", transform=axes.get_xaxis_transform(), color=INK, fontsize=9)
        axes.axvline(served.compute_bound_from, color=QUIET, lw=1, ls="--")
        axes.annotate(
            "products with weights:\narithmetic bounds",
            (served.compute_bound_from, 0.3),
            (5, 0),
            axes.get_xaxis_transform(),
            "offset points",
            color=INK,
            fontsize=9,
            bbox={"fc": PAPER, "ec": "none", "pad": 1},
        )
        axes.set(xlim=(0.9, most), xlabel="sequences written at once", ylabel="tokens per second, at most")
    return Picture(figure)

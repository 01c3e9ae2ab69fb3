"""The roofline of this machine, measured, and a matrix product to move under it."""

from __future__ import annotations

from amp_lessons import devices, measure
from amp_lessons.formats import parse_whole
from amp_lessons.measure import GPUS, Promise, Rate, Survey, Timing
from amp_lessons.text.marks import MEASURED_MARK
from amp_lessons.text.words import flop_rate, percent, three_digits
from amp_lessons.views.base.controls import ControlValue, Slider, SliderWithField, dropdown, row, text_field
from amp_lessons.views.base.still import Still
from amp_lessons.views.base.view import View
from amp_lessons.views.figures.roofline import roofline_picture

STEP = 16  # a multiple of what tensor cores like in every precision
LARGEST_BY_SLIDER = {"cpu": 1024, "cuda": 8192}
LARGEST_TYPED = 2**16


def roofline_of(gpu: str, product: int | None = None) -> Still:
    """Show the roofline that the data sheet of ``gpu``, one of ``measure.GPUS``, promises.

    With ``product`` also where it puts the product of two square matrices of that size, in fp32 and in fp16.
    """
    if gpu not in GPUS:
        raise ValueError(f"there is no data sheet of {gpu!r} here; there are {', '.join(GPUS)}")
    sheet = GPUS[gpu]
    said = [
        f"{roof.precision} {flop_rate(roof.flop_per_s)}, ridge at {three_digits(roof.ridge_point)}"
        for roof in sheet.roofs
    ]
    caption = (
        f"{gpu}, computed from the data sheet, not measured: {three_digits(sheet.bytes_per_s / 1e9)} GB/s; "
        f"{'; '.join(said)} FLOP per byte. Source: {sheet.source}"
    )
    pair = [] if product is None else [sheet.roof(name).promise(product) for name in ("fp32", "fp16")]
    if pair:
        caption = f"{_say_pair(pair)} {caption}"
    return Still(
        roofline_picture(sheet.roofs, f"{gpu}\ncomputed from the data sheet", pair=pair),
        caption,
        "Roofline: FLOP per second over FLOP per byte.",
    )


def _say_pair(pair: list[Promise]) -> str:
    """Say where the same product lies in both precisions, and what it gains."""
    wide, half = pair
    return (
        f"{wide.size:,} × {wide.size:,} in {wide.precision}: {three_digits(wide.intensity)} FLOP per byte, "
        f"at most {flop_rate(wide.flop_per_s)}; in {half.precision}: {three_digits(half.intensity)}, at most "
        f"{flop_rate(half.flop_per_s)}, {three_digits(half.flop_per_s / wide.flop_per_s)} times as much."
    )


class RooflineView(View):
    """Roofs and operations of this machine; choose the size of a matrix product, and it is measured."""

    precision = ControlValue[str]("_precision", "The precision of the product.")

    def __init__(
        self,
        survey: Survey | None = None,
        *,
        device: str | None = None,
        size: int = 512,
        precision: str = "fp32",
    ) -> None:
        """Show ``survey``, by default one of ``device`` that is made now and takes seconds.

        The product is of two square matrices of ``size`` rows.
        """
        place = device or (survey.roofline.device if survey else devices.default_device())
        self._survey = survey or measure.survey(device=place)
        self._product: Rate | None = None
        self._size = 0
        most = LARGEST_BY_SLIDER.get(str(place).partition(":")[0], 1024)
        self._slider = Slider("Matrix size", 1, most // STEP, max(1, size // STEP), words=_slider_words)
        self._typed = text_field("or type any", "", placeholder="511 or 1,000")
        self._precision = dropdown("product in", list(self._survey.roofline.precisions), precision)
        controls = [self._slider, row(self._typed, self._precision)]
        super().__init__(controls, alt="Roofline: FLOP per second over FLOP per byte.")
        self._chosen = SliderWithField(self._slider, self._typed, self._slider_moved, self._size_typed)
        self._begin(size)
        self._precision.observe(lambda _: self._measure(self._size), "value")

    @property
    def survey(self) -> Survey:
        """What the picture is drawn from; a product that beats all others raises the roof."""
        return self._survey

    @property
    def product(self) -> Rate | None:
        """The product under the star, as measured."""
        return self._product

    @property
    def size(self) -> int | str:
        """The number of rows of both matrices. Setting it is typing it: text is welcome, and answered."""
        return self._size

    @size.setter
    def size(self, size: int | str) -> None:
        with self.answering(self._typed):
            self._measure(parse_whole(size, "The matrix size", LARGEST_TYPED))

    def _begin(self, size: int) -> None:
        """Show the product of this size; that of the survey is as good as a new one."""
        known = self._survey.square_product(size, self.precision)
        self._show()
        if known:
            self._put(known)
        else:
            self.size = size

    def _slider_moved(self, position: int) -> None:
        self._measure(position * STEP)

    def _size_typed(self, text: str) -> None:
        self.size = text

    def _measure(self, size: int) -> None:
        self.begin_work(f"{size:,} × {size:,} in {self.precision}")
        with self.answering():
            product = self._survey.measure_product(size, self.precision)
            self._survey = self._survey.with_product(product)
            self._put(product)

    def _put(self, product: Rate) -> None:
        """Move the star and the slider to this product."""
        self._product, self._size = product, product.size
        self._chosen.follow(product.size / STEP)
        self._show()

    def _show(self) -> None:
        roofline = self._survey.roofline
        where = f"measured on {roofline.device}"
        picture = roofline_picture(roofline.roofs, where, self._survey.operations, self._product)
        words = [describe_product(self._product, self._survey)] if self._product else []
        self.show(picture, " ".join([*words, describe_roofs(self._survey)]), mark=MEASURED_MARK)


def describe_product(product: Rate, survey: Survey) -> str:
    """Say how fast a product was, and how much of what bounds it that is."""
    ridge = survey.roofline.ridge_point(product.precision)
    bound = "arithmetic" if product.intensity >= ridge else "memory"
    reached = percent(survey.fraction_of_roof(product), 1)
    return (
        f"{product.size:,} × {product.size:,} in {product.precision}: {flop_rate(product.flop_per_s)}, "
        f"{reached} of what the roof allows at {three_digits(product.intensity)} FLOP per byte, "
        f"where {bound} is the bound."
    )


def describe_roofs(survey: Survey) -> str:
    """Say the best rates of products in all precisions, measured, and what they are on a CPU."""
    roofline = survey.roofline
    first, *others = roofline.precisions
    said = [
        f"{name} {three_digits(roofline.flop_per_s(name) / roofline.flop_per_s(first))} times"
        for name in others
    ]
    memory = three_digits(roofline.bytes_per_s(first) / 1e9)
    words = f"Measured on {roofline.device}: {first} products reach {flop_rate(roofline.flop_per_s(first))}"
    compared = f", {', '.join(said)} as much" if said else ""
    return f"{words}{compared}; memory moves {memory} GB/s.{_about_fp16(survey)}"


def _about_fp16(survey: Survey) -> str:
    roofline = survey.roofline
    on_cpu = roofline.device.startswith("cpu")
    if not on_cpu or not {"fp32", "fp16"} <= set(roofline.precisions):
        return ""
    fp32, fp16 = (_products(survey, name) for name in ("fp32", "fp16"))
    size = max(fp32.keys() & fp16.keys(), default=None)
    if size is None or (difference := fp16[size].compare(fp32[size])).verdict == "faster":
        return ""
    return (
        f" On this CPU fp16 products are not faster: {difference} at {size:,} rows. Operations that memory "
        "binds can be."
    )


def _products(survey: Survey, precision: str) -> dict[int, Timing]:
    """Return the timings of the survey's square products of one precision, by size."""
    return {
        rate.size: rate.timing
        for rate in survey.roofline.products
        if rate.precision == precision and rate.operation == "matrix product"
    }


def _slider_words(position: int) -> str:
    return f"{position * STEP:,}"

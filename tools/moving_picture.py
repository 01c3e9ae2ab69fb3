"""Draw the README's moving picture: lesson 03's view at one loss scale after the other.

``python -m tools.moving_picture`` runs the cells of the lesson that the view needs, then moves its slider, as
a learner would; each picture of the GIF is what the view shows then, with its sentence.
"""

from __future__ import annotations

import io
import json
import textwrap
from collections.abc import Iterator
from pathlib import Path

import matplotlib.pyplot as plt
from matplotlib.figure import Figure
from PIL import Image

from amp_lessons._base.drawing.style import INK

ROOT = Path(__file__).parents[1]
LESSON = ROOT / "notebooks" / "03_loss_scaling.ipynb"
PICTURE = ROOT / "docs" / "loss_scale.gif"
_CELLS = ("surprise", "floor-quiz", "real-train", "time-run", "live-view")
_EXPONENTS = (*range(0, 33, 2), *range(30, 0, -2))
_MS, _WIDTH_PX, _COLOURS = 600, 900, 32


def main() -> None:
    """Write the GIF, and say how large it is."""
    frames = [_frame(figure, sentence) for figure, sentence in _states()]
    palette = frames[len(frames) // 4].quantize(_COLOURS)  # where every zone has its colour
    first, *rest = (frame.quantize(palette=palette, dither=Image.Dither.NONE) for frame in frames)
    first.save(PICTURE, save_all=True, append_images=rest, duration=_MS, loop=0, optimize=True)
    print(f"{PICTURE}: {len(frames)} pictures, {PICTURE.stat().st_size / 1024:.0f} KiB")


def _states() -> Iterator[tuple[Figure, str]]:
    """Yield what the lesson's view shows at each scale, picture and sentence."""
    cells = {cell["id"]: "".join(cell["source"]) for cell in json.loads(LESSON.read_text("utf-8"))["cells"]}
    names: dict[str, object] = {"display": lambda *_: None}
    for cell in _CELLS:
        exec(cells[cell], names)
    view = names["view"]
    for exponent in _EXPONENTS:
        view.scale = 2.0**exponent
        yield view.picture.figure, view.caption


def _frame(figure: Figure, sentence: str) -> Image.Image:
    """Return a picture with its sentence below, as one image of ``_WIDTH_PX`` pixels."""
    drawn = _image(figure, dpi=_WIDTH_PX / figure.get_figwidth())
    below = plt.figure(figsize=(9, 0.7), facecolor="white")
    below.text(0.02, 0.95, textwrap.fill(sentence, 118), va="top", fontsize=10, color=INK)
    said = _image(below, dpi=_WIDTH_PX / 9)
    plt.close(below)
    whole = Image.new("RGB", (_WIDTH_PX, drawn.height + said.height), "white")
    whole.paste(drawn, (0, 0))
    whole.paste(said, (0, drawn.height))
    return whole


def _image(figure: Figure, dpi: float) -> Image.Image:
    memory = io.BytesIO()
    figure.savefig(memory, format="png", dpi=dpi)
    return Image.open(memory).convert("RGB")


if __name__ == "__main__":
    main()

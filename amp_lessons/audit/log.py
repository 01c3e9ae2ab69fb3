"""A log of an audit, step by step, for programs that read along: lines of JSON, or TensorBoard's scalars.

Nothing here loads PyTorch before there is a step to write.
"""

from __future__ import annotations

import importlib.util
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from amp_lessons._base.typed_json import dumps

if TYPE_CHECKING:
    from amp_lessons.audit.seen import LayerStep, StepSeen
    from amp_lessons.audit.watch import Seen

_OF_LINES = (".jsonl", ".json")


class StepLog:
    """Hand each step of an audit to a writer, in order, as soon as that makes nobody wait.

    Numbers that lie on a device are read where a step that is looked at closely waits for it anyway: steps
    before it are written then.
    """

    def __init__(self, seen: Seen, writer: Writer) -> None:
        self._seen, self._writer = seen, writer
        self._written = 0
        self._told: set[str] = set()
        seen.listen(lambda _, sampled: self._write(wait=sampled), at_end=self._end)

    def _write(self, wait: bool) -> None:
        for step in self._seen.steps_from(self._written, wait=wait):
            self._written += 1
            self._writer.write(step, self._layers(step) if step.sampled else {}, self._news())

    def _end(self) -> None:
        self._write(wait=True)
        self._writer.close()

    def _layers(self, step: StepSeen) -> dict[str, LayerStep]:
        last = ((name, layer.history[-1]) for name, layer in self._seen.layers.items() if layer.history)
        return {name: each for name, each in last if each.step == step.index}

    def _news(self) -> list[str]:
        """Return the codes that were not found before."""
        new = [code for code in self._seen.codes if code not in self._told]
        self._told |= set(new)
        return new


class JsonLines:
    """One line of JSON for each step, flushed: the fields of ``StepSeen``, with ``layers`` and ``findings``.

    inf and NaN are in words, as in an audit's report.
    """

    def __init__(self, path: Path) -> None:
        """Open the file, which is emptied. Raises OSError where that cannot be."""
        self._file = path.open("w", encoding="utf-8")

    def write(self, step: StepSeen, layers: dict[str, LayerStep], findings: list[str]) -> None:
        """Write one line."""
        told = {name: _layer(each) for name, each in layers.items()}
        line = asdict(step) | {"layers": told, "findings": findings}
        self._file.write(dumps(line) + "\n")
        self._file.flush()

    def close(self) -> None:
        """Close the file."""
        self._file.close()


class TensorBoard:
    """The same as scalars of TensorBoard: of each optimizer, and of each layer by what its gradients lose."""

    def __init__(self, folder: Path) -> None:
        """Begin a file of events in the folder, which is made."""
        from torch.utils.tensorboard import SummaryWriter

        self._to: Any = SummaryWriter(str(folder))

    def write(self, step: StepSeen, layers: dict[str, LayerStep], findings: list[str]) -> None:
        """Write what is known of one step."""
        of = f"optimizer {step.optimizer + 1}"
        names = ("loss", "scale", "gradient_norm", "lost_updates", "learning_rate")
        known = {f"{of}/{name}": getattr(step, name) for name in names} | {f"{of}/skipped": not step.happened}
        for name, each in layers.items():
            told = _layer(each)
            known |= {f"lost {number_format}/{name}": part for number_format, part in told["lost"].items()}
            known |= {f"gradient norm/{name}": told["norm"]}
        for name, number in known.items():
            if number is not None:
                self._to.add_scalar(name, float(number), step.index)
        for code in findings:
            self._to.add_text("findings", code, step.index)
        if layers:
            self._to.flush()

    def close(self) -> None:
        """Write what is left."""
        self._to.close()


Writer = JsonLines | TensorBoard


def _layer(seen: LayerStep) -> dict[str, Any]:
    """Return what is told of a layer; ``lost`` is the fraction of its gradients' norm that becomes zero."""
    return {
        "norm": seen.norm,
        "zero_fraction": seen.zero_fraction,
        "lost_update_fraction": seen.lost_update_fraction,
        "lost": {name: each.underflow_norm_fraction for name, each in seen.censuses.items() if each.at_stake},
    }


def is_of_lines(path: Path) -> bool:
    """Whether a log of this name is a file of lines, and not TensorBoard's folder."""
    return path.suffix in _OF_LINES


def obstacle(path: Path) -> str:
    """Say what stands against a log of this name; "" if nothing does."""
    if is_of_lines(path) or importlib.util.find_spec("tensorboard") is not None:
        return ""
    return (
        f"a log called {path.name!r} would be a folder for TensorBoard, which is not installed here "
        "(pip install tensorboard); a name that ends in .jsonl gets lines of JSON"
    )


def writer_to(path: Path) -> Writer:
    """Open a log. Raises ValueError where it would be TensorBoard's, which is not here, and OSError."""
    if problem := obstacle(path):
        raise ValueError(problem)
    return JsonLines(path) if is_of_lines(path) else TensorBoard(path)

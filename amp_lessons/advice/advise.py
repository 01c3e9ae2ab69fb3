"""Ask every instrument of the course about a model, and say what follows."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch import nn

from amp_lessons._base.arguments import require, require_callable, require_number, require_whole
from amp_lessons._base.render import Section
from amp_lessons._base.text.tables import Table
from amp_lessons._base.text.words import flop_rate, memory, relative
from amp_lessons._base.whole_process import running_eagerly
from amp_lessons.advice.advice import Advice
from amp_lessons.advice.facts import Facts
from amp_lessons.advice.gathering import Optimizers, default_optimizer, gather_facts
from amp_lessons.advice.subject import Loss, plain_path, subject_of
from amp_lessons.advice.verdict import verdict
from amp_lessons.formats.dtypes import dtype_name
from amp_lessons.measure import GPUS, KINDS
from amp_lessons.measure.batch import LARGEST_BATCH
from amp_lessons.measure.decoding import gpus_table, stored_table, what_is_counted

DEFAULT_GPU = "A100 SXM 40 GB"


def advise(
    model: nn.Module,
    batch: Any,
    loss: Loss | None = None,
    *,
    gpu: str = DEFAULT_GPU,
    optimizer: Optimizers = default_optimizer,
    steps: int = 20,
    seconds: float = 30.0,
    context: int | None = None,
) -> Advice:
    """Say whether to train ``model`` in mixed precision, in which dtype, and what to watch.

    ``batch`` is what a loader yields. With a ``loss``, a function of output and target, it is a pair of
    inputs and target: ``loss(model(inputs), target)``; what is no pair is both, as for an autoencoder.
    Without one, it holds the inputs alone, and the model computes its loss itself, as those of
    ``transformers`` do when they are given labels. Inputs in a dict are given by name, those in a tuple in
    order.

    ``gpu`` is one of ``measure.GPUS``; what needs it is computed. ``optimizer`` makes an optimizer of
    parameters; ``steps`` steps with it are audited, on a copy of the model in training mode; the model and
    PyTorch's random numbers are left as they were. All of it takes about ``seconds``, and what there was no
    time for is said. What ``torch.compile`` makes of a model is not looked at.

    Of a causal language model of ``transformers`` it also says what serving takes: bytes, and the most tokens
    per second after ``context`` others; by default that is 4,096, or as many as the model knows. With a
    ``context`` it says so of any model that is called as these are (``measure.decoding_of``).

    Raises ``CannotAdviseError`` for what cannot be trained at all, with the reason, and ``TypeError`` or
    ``ValueError`` for other arguments that make no sense.
    """
    require(gpu, str, "gpu", 'the name of a GPU such as "T4"')
    if gpu not in GPUS:
        raise ValueError(f"unknown gpu {gpu!r}; there are {', '.join(GPUS)}")
    makes_one = "a function of parameters that makes one, such as torch.optim.AdamW"
    require_callable(optimizer, "optimizer", makes_one)
    require_whole(steps, "steps")
    require_number(seconds, "seconds", above=0)
    if context is not None:
        require_whole(context, "context")
    start = time.monotonic()
    # operations are followed one by one, and draw what is not theirs to draw
    with running_eagerly(), torch.random.fork_rng():
        subject = subject_of(model, batch, loss)
        options: dict[str, Any] = {"optimizer": optimizer, "steps": steps, "context": context}
        facts = gather_facts(subject, GPUS[gpu], start=start, seconds=seconds, **options)
    return Advice(
        of=subject.name,
        gpu=gpu,
        dtype=facts.dtype,
        verdict=tuple(verdict(facts)),
        ledger=facts.ledger,
        islands=facts.islands,
        memory=facts.memory,
        largest_batch=facts.largest_batch,
        bounds=facts.bounds,
        timings=facts.timings,
        decoding=facts.decoding,
        audit=facts.audit,
        sections=tuple(sections_of(facts)),
        not_done=tuple(facts.not_done),
    )


# --- what stands below a verdict: the numbers that it rests on, as tables

_MOST_ROWS = 16


def sections_of(facts: Facts) -> Iterator[Section]:
    """Yield one section for each instrument that has something to say."""
    yield from _ledger(facts)
    yield from _islands(facts)
    yield from _memory(facts)
    yield from _largest_batch(facts)
    yield from _roofline(facts)
    yield from _steps(facts)
    yield from _decoding(facts)


def _ledger(facts: Facts) -> Iterator[Section]:
    ledger = facts.ledger
    if ledger is None:
        return
    rows = [
        (
            rule,
            f"{each.operations:,}",
            ", ".join(f"{dtype_name(dtype)} {count:,}" for dtype, count in each.output_dtypes.items()),
            f"{each.casts:,}",
            memory(each.cast_bytes),
        )
        for rule, each in ledger.by_rule().items()
    ]
    head = ("rule", "operations", "results in", "casts", "written by casts")
    said = f"[computed] One forward and backward pass: {ledger.where}."
    yield Section("Ledger: what autocast decides", (said,), table=Table(head, rows))


def _islands(facts: Facts) -> Iterator[Section]:
    rows = [
        (
            plain_path(each.module) or "(model)",
            each.kind,
            dtype_name(dtype),
            "inf or NaN" if each.overflows else relative(each.error),
            relative(each.island_error) if each.island_error else "0",
            f"{each.largest:.3g}",
        )
        for dtype, islands in facts.islands.items()
        for each in islands.found
    ]
    if rows:
        head = ("module", "kind", "in", "error", "error as an island", "largest result")
        yield Section("Islands of fp32", ("[measured] Each module run by itself.",), table=Table(head, rows))


def _memory(facts: Facts) -> Iterator[Section]:
    """Tabulate the memory of a step by kind, and what each module keeps for the backward pass."""
    if not facts.memory:
        return
    prints = facts.memory
    kinds = [kind for kind in KINDS if any(each.at_peak.get(kind) for each in prints.values())]
    rows = [(kind, *(memory(each.at_peak.get(kind, 0)) for each in prints.values())) for kind in kinds]
    rows.append(("in all", *(memory(each.peak_bytes) for each in prints.values())))
    count = facts.subject.samples
    samples = "one sample" if count == 1 else f"{count:,} samples"
    computed = "computed" in next(iter(prints.values())).source
    label, where = ("computed", "by a GPU's kernels") if computed else ("measured", "taken here")
    said = f"[{label}] A training step on {samples}, at its worst moment, {where}. {_not_counted(facts)}"
    yield Section("Memory", (said,), table=Table(("at the peak", *prints), rows))
    yield Section("Memory by module", table=_by_module(facts))


_SAME = 0.1  # of the memory on a GPU: as near as a prediction comes


def _not_counted(facts: Facts) -> str:
    """Say what the numbers leave out, and in what a step on this CPU differs, if it does."""
    footprint = next(iter(facts.memory.values()))
    inside = "What kernels allocate inside themselves is not counted."
    said = [] if "workspace" in footprint.at_peak else [inside]
    said += [footprint.warning] if footprint.warning else []
    here = facts.memory_here
    if here is not None and abs(here.peak_bytes / footprint.peak_bytes - 1) > _SAME:
        said.append(
            f"On this CPU the same step takes {memory(here.peak_bytes)} {facts.told('fp32')}: attention and "
            "dropout have other kernels here, and optimizers update one parameter after another by default."
        )
    return " ".join(said)


def _by_module(facts: Facts) -> Table:
    of_weights = [
        (name.rpartition(".")[0], each.nbytes) for name, each in facts.subject.training.named_parameters()
    ]
    depth = _depth([path for path, _ in of_weights])
    weights = _bytes_by_path(of_weights, depth)
    saved = {
        name: _bytes_by_path(((each.module, each.nbytes) for each in footprint.saved), depth)
        for name, footprint in facts.memory.items()
    }
    paths = list(dict.fromkeys([*weights, *(path for each in saved.values() for path in each)]))
    largest = sorted(paths, key=lambda path: -weights[path] - max(each[path] for each in saved.values()))
    kept = set(largest[:_MOST_ROWS])
    rows = [
        (path, memory(weights[path]), *(memory(each[path]) for each in saved.values()))
        for path in paths
        if path in kept
    ]
    more = len(paths) - len(kept)
    rest = "One more module needs less." if more == 1 else f"{more} more modules need less."
    head = ("module", "weights", *(f"kept for backward, {name}" for name in saved))
    return Table(head, rows, notes=[rest] if more else [])


def _depth(paths: list[str]) -> int:
    """Return how many names of a path tell modules apart in a table that can be read."""
    fitting = [depth for depth in range(1, 7) if len({_cut(path, depth) for path in paths}) <= _MOST_ROWS]
    return max(fitting, default=1)


def _cut(path: str, depth: int) -> str:
    """Return the first names of a path in the learner's model."""
    return ".".join(plain_path(path).split(".")[:depth]) or "(the model itself)"


def _bytes_by_path(sizes: Iterable[tuple[str, int]], depth: int) -> Counter[str]:
    counts: Counter[str] = Counter()
    for path, nbytes in sizes:
        counts[_cut(path, depth)] += nbytes
    return counts


def _largest_batch(facts: Facts) -> Iterator[Section]:
    if not facts.largest_batch:
        return
    rows = [
        (name, f"{each.batch:,}{' or more' if each.batch == LARGEST_BATCH else ''}")
        for name, each in facts.largest_batch.items()
    ]
    room = memory(facts.sheet.usable_bytes)
    warning = next((f" {each.warning}" for each in facts.largest_batch.values() if each.warning), "")
    said = (
        f"[computed] What fits into the {room} that the {facts.gpu} has for tensors. Samples are counted "
        f"along the first dimension of the batch's first tensor.{warning}"
    )
    yield Section("Largest batch", (said,), table=Table(("precision", "samples"), rows))


def _roofline(facts: Facts) -> Iterator[Section]:
    if not facts.bounds:
        return
    rows = [
        (
            name,
            f"{bound.ms:.3g} ms",
            f"{100 * bound.product_ms / bound.ms:.0f} %",
            flop_rate(facts.sheet.flop_per_s[name]),
            f"{sum(bound.product_flops.values()) / 1e9:,.3g}",
            memory(bound.moved_bytes),
        )
        for name, bound in facts.bounds.items()
    ]
    head = ("precision", "at least", "of it bound by products", "peak", "GFLOP", "moved")
    said = (
        f"[computed] A forward and backward pass on the {facts.gpu}, every operation at the roof of the data "
        f"sheet ({facts.sheet.source}), none fused. Real steps take longer."
    )
    yield Section("What the roofline promises", (said,), table=Table(head, rows))


def _steps(facts: Facts) -> Iterator[Section]:
    if facts.audit is not None and facts.audited_in is not None:
        yield Section(
            "Audited steps", (f"[measured] In {dtype_name(facts.audited_in)}: {facts.audit.headline}.",)
        )


def _decoding(facts: Facts) -> Iterator[Section]:
    """Say what writing text takes, on the GPU in several ways of storing the model, and on all GPUs."""
    if facts.decoding is None:
        return
    said = f"[computed] {what_is_counted(facts.decoding)}"
    yield Section(f"Decoding on the {facts.gpu}", (said,), table=stored_table(facts.decoding, facts.sheet))
    title = "Decoding in 16 bits, by GPU"
    yield Section(title, ("[computed] Weights and cache in 16 bits.",), table=gpus_table(facts.decoding))

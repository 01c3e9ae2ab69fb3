"""Which modules of a model of each kind need fp32, and what is said of who names others."""

from __future__ import annotations

from dataclasses import dataclass

from torch import nn

from amp_lessons.course.exercises.amp_ready.models_there import built


@dataclass(frozen=True)
class Kind:
    """A kind of model, and where its wrong modules are: the place of a part, and the path below it.

    ``what`` describes it; ``missed`` is the code of the finding where a name is missing, ``named`` of that
    where a module is named that is right.
    """

    what: str
    missed: str
    wrong: tuple[tuple[int, str], ...] = ()
    named: str = "healthy_named"


@dataclass(frozen=True)
class ModelCase:
    """A model in eval mode, and the names of its modules that need fp32."""

    kind: Kind
    model: nn.Module
    expected: frozenset[str]

    @property
    def what(self) -> str:
        """What is to be said of the model."""
        return self.kind.what


def case_of(kind: str, seed: int) -> ModelCase:
    """Make a model of one of ``KINDS`` from a seed, and name what is wrong in it."""
    model, _ = built(kind, seed)
    parts = [name for name, _ in model.named_children()]
    return ModelCase(KINDS[kind], model, frozenset(f"{parts[at]}{rest}" for at, rest in KINDS[kind].wrong))


KINDS = {
    "finite": Kind("a model in which a finite number is wrong", "finite_but_wrong", ((2, ".1"),)),
    "nan": Kind("a model in which a quotient is wrong", "nan_unnoticed", ((3, ""),)),
    "own operations": Kind("a model of which no layer is wrong", "own_operations_missed", ((3, ""),)),
    "one after the other": Kind(
        "a model in which two modules are wrong", "hidden_by_the_first", ((1, ".1"), (1, ".10"))
    ),
    "second call": Kind("a model that uses a module twice", "later_call_missed", ((3, ".shared"),)),
    "first call": Kind("a model that uses a module twice", "first_call_missed", ((3, ".shared"),)),
    "products": Kind("a model whose products autocast has in fp32", "island_missed"),
    "large weights": Kind("a model that needs no island", "island_missed"),
    "small weights": Kind("a model with weights like any other's", "island_missed", ((1, ".parts.3"),)),
    "rows": Kind("a model that makes some rows large", "rows_missed", ((2, ".2"),)),
    "evenly": Kind("a model that adds a large number and takes it away", "not_by_norm", ((1, ".4"),)),
    "one column": Kind(
        "a model that adds a large number to one column", "island_missed", named="not_by_norm"
    ),
    "one call of three": Kind(
        "a model that uses a module three times", "calls_averaged", ((1, ".4.shared"),)
    ),
    "in place": Kind("a model that works in place", "island_missed", named="changed_in_place"),
}

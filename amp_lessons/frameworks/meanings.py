"""The meaning of a flag: a small model is trained with it under the audit, which reports the dtypes.

And what ``accelerate estimate-memory`` promises a training, beside what the course predicts.
"""

from __future__ import annotations

import contextlib
import io
import logging
import tempfile
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from amp_lessons import audit
from amp_lessons.measure import predict_memory

# --- the same small training in each framework: two steps of AdamW, then an evaluation

Batches = list[dict[str, Tensor]]
Run = Callable[[nn.Module, Batches], None]


def with_transformers(**flags: Any) -> Run:
    """Train by ``transformers.Trainer`` with these flags of ``TrainingArguments``."""

    def run(model: nn.Module, batches: Batches) -> None:
        import transformers

        samples = [
            {"x": x, "labels": label} for batch in batches for x, label in zip(*batch.values(), strict=True)
        ]
        with tempfile.TemporaryDirectory() as folder:
            arguments = transformers.TrainingArguments(
                folder,
                per_device_train_batch_size=len(samples) // 2,
                max_steps=2,
                report_to=[],
                save_strategy="no",
                disable_tqdm=True,
                use_cpu=not torch.cuda.is_available(),
                **flags,
            )
            data: Any = samples
            trainer = transformers.Trainer(model, arguments, train_dataset=data, eval_dataset=data)
            trainer.train()
            trainer.evaluate()

    return run


def with_accelerate(mixed_precision: str) -> Run:
    """Train by a loop of one's own, prepared by ``accelerate.Accelerator``."""

    def run(model: nn.Module, batches: Batches) -> None:
        import accelerate
        from accelerate.state import AcceleratorState

        AcceleratorState._reset_state(reset_partial_state=True)
        try:
            accelerator = accelerate.Accelerator(mixed_precision=mixed_precision)
            prepared, optimizer = accelerator.prepare(model, torch.optim.AdamW(model.parameters()))
            for batch in batches:
                batch = {name: each.to(accelerator.device) for name, each in batch.items()}
                accelerator.backward(prepared(**batch)["loss"])
                optimizer.step()
                optimizer.zero_grad()
            with torch.no_grad():
                prepared(**batch)
        finally:
            AcceleratorState._reset_state(reset_partial_state=True)

    return run


def with_lightning(precision: str) -> Run:
    """Train by Lightning's ``Trainer`` with this ``precision``."""

    def run(model: nn.Module, batches: Batches) -> None:
        import pytorch_lightning as lightning

        class Task(lightning.LightningModule):
            def __init__(self) -> None:
                super().__init__()
                self.model = model

            def training_step(self, batch: Any, index: int) -> Tensor:
                return self.model(**batch)["loss"]

            def validation_step(self, batch: Any, index: int) -> None:
                self.model(**batch)

            def configure_optimizers(self) -> Any:
                return torch.optim.AdamW(self.model.parameters())

        with tempfile.TemporaryDirectory() as folder:
            trainer = lightning.Trainer(
                precision=precision,  # type: ignore[arg-type]
                max_epochs=1,
                logger=False,
                enable_checkpointing=False,
                enable_progress_bar=False,
                enable_model_summary=False,
                default_root_dir=folder,
                num_sanity_val_steps=0,
            )
            loader: Any = torch.utils.data.DataLoader(batches, batch_size=None)  # type: ignore[arg-type]
            trainer.fit(Task(), loader, loader)

    return run


# --- what each flag means

# By framework and flag; what each does is asked of the installed version.
FLAGS: dict[tuple[str, str], Run] = {
    ("transformers", "(none)"): with_transformers(),
    ("transformers", "fp16"): with_transformers(fp16=True),
    ("transformers", "bf16"): with_transformers(bf16=True),
    ("transformers", "fp16_full_eval"): with_transformers(fp16_full_eval=True),
    ("transformers", "bf16_full_eval"): with_transformers(bf16_full_eval=True),
    ("accelerate", "no"): with_accelerate("no"),
    ("accelerate", "fp16"): with_accelerate("fp16"),
    ("accelerate", "bf16"): with_accelerate("bf16"),
    ("lightning", "32-true"): with_lightning("32-true"),
    ("lightning", "16-mixed"): with_lightning("16-mixed"),
    ("lightning", "bf16-mixed"): with_lightning("bf16-mixed"),
    ("lightning", "16-true"): with_lightning("16-true"),
    ("lightning", "bf16-true"): with_lightning("bf16-true"),
}


@dataclass(frozen=True)
class Meaning:
    """The meaning of a framework's flag in a small training here, in dtypes; None where nothing was seen.

    ``compute`` is what a linear layer returned in training, ``evaluation`` what it returned in evaluation,
    with weights in ``evaluation_weights``. ``refused`` is the error by which the framework refused the flag
    on this device, "" where it trained.
    """

    framework: str
    flag: str
    device: str
    weights: torch.dtype | None = None
    compute: torch.dtype | None = None
    gradients: torch.dtype | None = None
    optimizer_state: torch.dtype | None = None
    scaler: bool = False
    evaluation: torch.dtype | None = None
    evaluation_weights: torch.dtype | None = None
    refused: str = ""


def meaning_of(framework: str, flag: str, loaded: torch.dtype = torch.float32) -> Meaning:
    """Train a linear layer for two steps and evaluate it, and tell the dtypes that were seen.

    ``loaded`` is the dtype of the weights that the framework is given, as a checkpoint may have it.

    Raises ``ValueError`` for what is not in ``FLAGS``, ``ImportError`` where the framework is not installed.
    """
    if (framework, flag) not in FLAGS:
        known = [f"{name} {each}" for name, each in FLAGS]
        raise ValueError(f"unknown flag {flag!r} of {framework!r}; there are {', '.join(known)}")
    device = "cuda" if torch.cuda.is_available() else "cpu"
    with torch.random.fork_rng():
        model = _Small().to(loaded)
    seen: dict[str, Any] = {}

    def look(layer: nn.Module, args: object, output: Tensor) -> None:
        computed, held = output.dtype, next(layer.parameters()).dtype
        if torch.is_grad_enabled():
            seen.update(compute=computed, weights=held)
        else:
            seen.update(evaluation=computed, evaluation_weights=held)

    model.layer.register_forward_hook(look)
    weight: Any = model.layer.weight
    weight.register_post_accumulate_grad_hook(lambda each: seen.update(gradients=each.grad.dtype))
    with _quietly(), torch.random.fork_rng(), torch.enable_grad(), audit.watch(model, every=1) as watched:
        try:
            FLAGS[framework, flag](model, _batches())
        except ImportError:
            raise
        except Exception as error:
            return Meaning(framework, flag, device, refused=f"{type(error).__name__}: {error}")
    state = watched.layers["layer"].dtypes.get("optimizer.exp_avg")
    scaler = any(step.scale != 1 for step in watched.steps)
    return Meaning(framework, flag, device, optimizer_state=state, scaler=scaler, **seen)


class _Small(nn.Module):
    """One linear layer, which computes its own loss as those of transformers do."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(8, 2)

    def forward(self, x: Tensor, labels: Tensor) -> dict[str, Tensor]:
        """Return loss and logits for ``x`` of shape (batch, 8)."""
        logits = self.layer(x.to(self.layer.weight.dtype))
        return {"loss": nn.functional.cross_entropy(logits.float(), labels), "logits": logits}


def _batches() -> list[dict[str, Tensor]]:
    draw = torch.Generator().manual_seed(0)

    def batch() -> dict[str, Tensor]:
        x = torch.randn(4, 8, generator=draw, dtype=torch.float32)
        return {"x": x, "labels": torch.randint(0, 2, (4,), generator=draw)}

    return [batch() for _ in range(2)]


@contextmanager
def _quietly() -> Iterator[None]:
    """Keep progress bars, tables and advertisements of frameworks from being shown."""
    said = io.StringIO()
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        with warnings.catch_warnings(), contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)


# --- the memory of a training by accelerate's estimate

_NAMES = {"fp32": "float32", "fp16": "float16", "bf16": "bfloat16"}


@dataclass(frozen=True)
class Estimate:
    """Bytes of a training step: what accelerate says, and what a step with Adam is predicted to need.

    ``predicted_state_bytes`` are weights, gradients and Adam's state alone, without any activation,
    ``predicted_peak_bytes`` those of the whole step.
    """

    precision: str
    said_bytes: int
    predicted_state_bytes: int
    predicted_peak_bytes: int


def accelerate_estimate(model: nn.Module, *inputs: Any, precision_name: str, **named_inputs: Any) -> Estimate:
    """Ask the function behind ``accelerate estimate-memory``, and ``measure.predict_memory``.

    Without network: the model is given, real or fake, where the command loads a configuration from the Hub.
    What the command prints as the memory of a training is the largest of the parts that it returns. Raises
    ``ImportError`` without accelerate, ``ValueError`` for a precision that is not one of fp32, fp16, bf16.
    """
    from accelerate.commands.estimate import estimate_training_usage
    from accelerate.utils import calculate_maximum_sizes

    if precision_name not in _NAMES:
        raise ValueError(f"precision_name is one of {', '.join(_NAMES)}, not {precision_name!r}")
    total, _ = calculate_maximum_sizes(model)
    parts = estimate_training_usage(total, _NAMES[precision_name])
    step = predict_memory(model, *inputs, precision_name=precision_name, **named_inputs)
    state = step.parameter_bytes + step.gradient_bytes + step.optimizer_bytes
    return Estimate(precision_name, int(max(parts.values())), state, step.peak_bytes)

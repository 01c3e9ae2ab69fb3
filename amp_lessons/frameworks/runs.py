"""The same small training in each framework: two steps of AdamW, then an evaluation."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

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

"""The audit as a callback: frameworks' own loops, bit for bit as without it, and what it finds in them."""

from __future__ import annotations

import json
import sys

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from amp_lessons import audit, frameworks

pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.slow]


class Small(nn.Module):
    """Two layers with dropout, which compute their own loss as those of transformers do."""

    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(8, 16), nn.Linear(16, 2)

    def forward(self, x, labels):
        x = x.to(self.first.weight.dtype)
        logits = self.last(F.dropout(self.first(x).relu(), 0.1, self.training))
        return {"loss": F.cross_entropy(logits.float(), labels), "logits": logits}


def data():
    draw = torch.Generator().manual_seed(0)
    return torch.randn(32, 8, generator=draw), torch.randint(0, 2, (32,), generator=draw)


def with_transformers(folder, model, callbacks, **options):
    transformers = pytest.importorskip("transformers")
    pytest.importorskip("accelerate")
    arguments = transformers.TrainingArguments(
        str(folder), per_device_train_batch_size=4, max_steps=6, use_cpu=True, report_to=[],
        disable_tqdm=True, save_strategy="no", **options,
    )  # fmt: skip
    samples = [{"x": x, "labels": label} for x, label in zip(*data(), strict=True)]
    transformers.Trainer(model, arguments, train_dataset=samples, callbacks=callbacks).train()


def with_lightning(folder, model, callbacks, fails=False):
    lightning = pytest.importorskip("pytorch_lightning")

    class Task(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.model = model

        def training_step(self, batch, index):
            if fails and index == 2:
                raise ValueError("no more data")
            return self.model(*batch)["loss"]

        def configure_optimizers(self):
            return torch.optim.AdamW(self.model.parameters(), lr=1e-2)

    trainer = lightning.Trainer(
        accelerator="cpu", precision="bf16-mixed", max_epochs=1, logger=False, enable_checkpointing=False,
        enable_progress_bar=False, enable_model_summary=False, default_root_dir=folder, callbacks=callbacks,
    )  # fmt: skip
    trainer.fit(Task(), DataLoader(TensorDataset(*data()), batch_size=4))


def with_accelerate(folder, model, trackers):
    accelerate = pytest.importorskip("accelerate")
    accelerator = accelerate.Accelerator(cpu=True, mixed_precision="bf16", log_with=trackers or None)
    accelerator.init_trackers("a run")
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    loader = DataLoader(TensorDataset(*data()), batch_size=4)
    prepared, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    for batch in loader:
        accelerator.backward(prepared(*batch)["loss"])
        optimizer.step()
        optimizer.zero_grad()
    accelerator.log({"done": 1})
    accelerator.end_training()
    accelerate.state.AcceleratorState._reset_state(reset_partial_state=True)


def weights_of(train, *args, **options):
    torch.manual_seed(0)
    model = Small()
    train(*args[:1], model, *args[1:], **options)
    return list(model.state_dict().values())


LOOPS = {
    "transformers": (with_transformers, "transformers_callback", {"bf16": True}, 6),
    "lightning": (with_lightning, "lightning_callback", {}, 8),
    "accelerate": (with_accelerate, "accelerate_tracker", {}, 8),
}


@pytest.mark.parametrize("name", LOOPS)
def test_each_framework_trains_bit_for_bit_as_without_and_is_seen(tmp_path, name):
    train, make, options, steps = LOOPS[name]
    alone = weights_of(train, tmp_path, [], **options)
    callback = getattr(frameworks, make)(every=2, log=tmp_path / "run.jsonl")
    watched = weights_of(train, tmp_path, [callback], **options)
    assert all(torch.equal(one, other) for one, other in zip(alone, watched, strict=True))
    report = callback.report
    assert report.passed
    assert len(callback.seen.steps) == steps
    assert report.precision.autocast == (torch.bfloat16,)
    assert any(layer.endswith("first") for layer in report.layers)
    assert not [each for each in report.not_seen if "trouble" in each]
    losses = [json.loads(line)["loss"] for line in (tmp_path / "run.jsonl").read_text().splitlines()]
    assert losses == [step.loss for step in callback.seen.steps]
    with audit.watch():  # its own has ended
        pass


def test_a_mistake_in_a_trainer_is_found(tmp_path):
    """Weights in bf16 at a rate that never moves them, as dtype="bfloat16" and a usual rate bring about."""
    callback = frameworks.transformers_callback(every=1)
    with_transformers(tmp_path, Small().bfloat16(), [callback], learning_rate=1e-7, bf16=True)
    assert "updates_rounded_away" in {finding.code for finding in callback.report.findings}


def test_an_exception_in_lightning_ends_the_watch_and_is_in_the_report(tmp_path):
    callback = frameworks.lightning_callback()
    with pytest.raises(ValueError, match="no more data"):
        with_lightning(tmp_path, Small(), [callback], fails=True)
    assert callback.report.ended == "ValueError: no more data"
    assert len(callback.seen.steps) == 2
    with audit.watch():
        pass


def test_after_an_exception_in_a_trainer_the_next_training_begins_anew(tmp_path):
    """Trainer tells no callback of it: the watch is ended by hand, or by the next training."""

    class Failing(Small):
        def forward(self, x, labels):
            raise ValueError("no more data")

    callback = frameworks.transformers_callback()
    with pytest.raises(RuntimeError, match="no training has begun yet"):
        callback.report  # noqa: B018
    with pytest.raises(ValueError, match="no more data"):
        with_transformers(tmp_path, Failing(), [callback])
    with_transformers(tmp_path, Small(), [callback])
    assert len(callback.seen.steps) == 6
    with pytest.raises(ValueError, match="no more data"):
        with_transformers(tmp_path, Failing(), [callback])
    callback.end()
    with audit.watch():
        pass


def test_a_framework_that_is_not_there_is_missed_by_its_name(monkeypatch):
    for name, make in (("transformers", frameworks.transformers_callback),
                       ("accelerate.tracking", frameworks.accelerate_tracker)):  # fmt: skip
        monkeypatch.setitem(sys.modules, name, None)
        with pytest.raises(ImportError, match=name):
            make()
    monkeypatch.setitem(sys.modules, "pytorch_lightning", None)
    monkeypatch.delitem(sys.modules, "lightning.pytorch", raising=False)
    with pytest.raises(ImportError, match="pytorch_lightning"):
        frameworks.lightning_callback()

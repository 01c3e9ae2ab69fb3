"""Libraries' own loops, on tiny models: a watch changes nothing of them and finds nothing wrong."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from amp_lessons import audit
from tests.audit.plain_loops import mistakes

pytestmark = pytest.mark.filterwarnings("ignore")


def check(train: Any) -> audit.Report:
    """Train without and with a watch; compare the weights, and return what was seen."""
    weights = []
    for watching in (False, True):
        torch.manual_seed(0)
        if watching:
            with audit.watch(every=2) as seen:
                weights.append(train())
        else:
            weights.append(train())
    for one, other in zip(*(model.state_dict().values() for model in weights), strict=True):
        assert torch.equal(one, other)
    assert mistakes(seen.report) == set(), seen.report.findings
    assert not [each for each in seen.report.not_seen if "trouble" in each]
    assert len(seen.steps) >= 3
    return seen.report


@pytest.mark.slow
@pytest.mark.parametrize(
    "bf16", [pytest.param(False, marks=pytest.mark.thorough), True], ids=["fp32", "bf16"]
)
@pytest.mark.parametrize("accumulate", [pytest.param(1, marks=pytest.mark.thorough), 2])
def test_transformers_trainer(tmp_path, bf16, accumulate):
    transformers = pytest.importorskip("transformers")
    pytest.importorskip("accelerate")

    def train() -> nn.Module:
        config = transformers.GPT2Config(
            vocab_size=50, n_positions=16, n_embd=16, n_layer=2, n_head=2, bos_token_id=0, eos_token_id=0
        )
        model = transformers.GPT2LMHeadModel(config)
        tokens = torch.randint(0, 50, (16, 8))
        data = [{"input_ids": row, "labels": row} for row in tokens]
        arguments = transformers.TrainingArguments(
            output_dir=str(tmp_path), per_device_train_batch_size=2, max_steps=4, bf16=bf16, use_cpu=True,
            gradient_accumulation_steps=accumulate, report_to=[], disable_tqdm=True, logging_steps=1,
            save_strategy="no",
        )  # fmt: skip
        transformers.Trainer(model=model, args=arguments, train_dataset=data).train()
        return model

    check(train)


@pytest.mark.slow
def test_a_transformers_model_in_a_plain_loop():
    transformers = pytest.importorskip("transformers")

    def train() -> nn.Module:
        config = transformers.BertConfig(
            vocab_size=50, hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=32
        )
        model = transformers.BertForSequenceClassification(config)
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
        for _ in range(4):
            tokens = torch.randint(0, 50, (4, 8))
            mask = torch.ones_like(tokens)
            mask[:, 6:] = 0
            with torch.autocast("cpu", dtype=torch.bfloat16):
                loss = model(tokens, attention_mask=mask, labels=torch.zeros(4, dtype=torch.long)).loss
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        return model

    check(train)


@pytest.mark.slow
@pytest.mark.parametrize("accumulate", [pytest.param(1, marks=pytest.mark.thorough), 2])
def test_accelerate(accumulate):
    accelerate = pytest.importorskip("accelerate")

    def train() -> nn.Module:
        accelerator = accelerate.Accelerator(
            cpu=True, mixed_precision="bf16", gradient_accumulation_steps=accumulate
        )
        model = nn.Linear(8, 4)
        data = DataLoader(TensorDataset(torch.randn(32, 8), torch.randint(0, 4, (32,))), batch_size=4)
        optimizer = torch.optim.AdamW(model.parameters())
        prepared, optimizer, data = accelerator.prepare(model, optimizer, data)
        for inputs, targets in data:
            with accelerator.accumulate(prepared):
                loss = F.cross_entropy(prepared(inputs), targets)
                accelerator.backward(loss)
                if accelerator.sync_gradients:
                    accelerator.clip_grad_norm_(prepared.parameters(), 1.0)
                optimizer.step()
                optimizer.zero_grad()
        return model

    check(train)


@pytest.mark.slow
def test_lightning():
    lightning = pytest.importorskip("lightning")

    class Module(lightning.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.net = nn.Linear(8, 4)

        def training_step(self, batch: Any, index: int) -> torch.Tensor:
            return F.cross_entropy(self.net(batch[0]), batch[1])

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.AdamW(self.parameters())

    def train() -> nn.Module:
        data = DataLoader(TensorDataset(torch.randn(32, 8), torch.randint(0, 4, (32,))), batch_size=4)
        module = Module()
        trainer = lightning.Trainer(
            max_epochs=1, precision="bf16-mixed", accelerator="cpu", logger=False, barebones=True
        )
        trainer.fit(module, data)
        return module

    check(train)

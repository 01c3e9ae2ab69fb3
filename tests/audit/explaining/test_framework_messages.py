"""What installed frameworks say of a real mistake is known, and what the cure recommends runs in silence."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from amp_lessons import audit
from tests.audit.explaining.provoking import Mistake, X, given, heard

BF16 = torch.bfloat16


class _Records(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.said: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.said.append(record.getMessage())


def _said(code: Callable[[], object]) -> list[BaseException | str]:
    """Return what code raises and warns of, and what Transformers logs meanwhile, each warning anew."""
    logger, records = logging.getLogger("transformers"), _Records()
    level = logger.level
    logger.setLevel(logging.WARNING)  # what another test has loaded may have silenced it
    if once := getattr(logger, "warning_once", None):
        once.cache_clear()
    logger.addHandler(records)
    try:
        return [*heard(code), *records.said]
    finally:
        logger.removeHandler(records)
        logger.setLevel(level)


def _explained(mistake: Mistake) -> None:
    said = _said(mistake.made)
    assert mistake.name in {audit.explain(each).name for each in said}, said
    said = _said(mistake.cured)
    assert not [each for each in said if isinstance(each, Exception) and not isinstance(each, Warning)]
    assert not [each for each in said if audit.explain(each).known]


def _arguments(**flags: bool | None) -> object:
    from transformers import TrainingArguments

    return TrainingArguments("unused", report_to=[], use_cpu=True, **flags)


def _model(quantized: bool) -> torch.nn.Module:
    from transformers import BertConfig, BertModel

    sizes = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 1, "intermediate_size": 8}
    model = BertModel(BertConfig(vocab_size=8, **sizes))
    model.is_quantized = quantized
    return model


def _validated(quantized: bool) -> None:
    from transformers.trainer_utils import validate_quantization_for_training

    validate_quantization_for_training(_model(quantized))


def _checked_for_flash(dtype: torch.dtype) -> None:
    from transformers.modeling_flash_attention_utils import fa_peft_integration_check

    fa_peft_integration_check(*[X.to(dtype)] * 3, target_dtype=BF16)


def _dtype_by(name: str) -> torch.dtype:
    from transformers import BertConfig

    return getattr(BertConfig(dtype=BF16), name)


WITH_TRANSFORMERS = (
    given("old_name_of_dtype", _dtype_by, "torch_dtype", "dtype"),
    given("queries_cast_back", _checked_for_flash, torch.float32, BF16),
    given("quantized_model_cast", lambda x: _model(quantized=x).half(), True, False),
    given("quantized_model_trained", lambda x: _validated(quantized=x), True, False),
    given("no_tf32_on_this_gpu", lambda tf32: _arguments(tf32=tf32), True, None),
    given("two_precisions_at_once", lambda fp16: _arguments(fp16=fp16, bf16=True), True, False),
)


@pytest.mark.parametrize("mistake", WITH_TRANSFORMERS, ids=str)
def test_what_transformers_says_is_explained(mistake: Mistake):
    pytest.importorskip("transformers")
    pytest.importorskip("accelerate")
    _explained(mistake)


@pytest.mark.parametrize(
    ("name", "flag"),
    [
        ("unknown_precision_flag", {"mixed_precision": "16-mixed"}),
        ("flag_of_another_library", {"fp16": True}),
    ],
)
def test_what_accelerate_says_is_explained(name, flag):
    accelerate = pytest.importorskip("accelerate")
    _explained(
        Mistake(
            name,
            lambda: accelerate.Accelerator(cpu=True, **flag),
            lambda: accelerate.Accelerator(cpu=True, mixed_precision="no"),
        )
    )


def _trainer(precision: object, folder: Path) -> object:
    import pytorch_lightning

    return pytorch_lightning.Trainer(accelerator="cpu", precision=precision, default_root_dir=folder)


def _precision(name: str, **more: object) -> object:
    from pytorch_lightning.plugins import MixedPrecision

    return MixedPrecision(name, "cpu", **more)


def _clipped(fused: bool) -> None:
    weight = torch.nn.Parameter(X.clone())
    weight.grad = X.clone()
    _precision("16-mixed").clip_gradients(torch.optim.AdamW([weight], fused=fused), 1.0)


def _with_lightning(folder: Path) -> tuple[Mistake, ...]:
    scaler = torch.amp.GradScaler("cpu")
    return (
        given("fp16_became_bf16", lambda x: _trainer(x, folder), "16-mixed", "bf16-mixed"),
        given("unknown_precision_flag", lambda x: _trainer(x, folder), "fp16", "bf16-mixed"),
        given("old_name_of_precision", lambda x: _trainer(x, folder), "bf16", "bf16-mixed"),
        given("scaler_for_bf16", lambda x: _precision(x, scaler=scaler), "bf16-mixed", "16-mixed"),
        given("clipping_a_fused_optimizer", _clipped, True, False),
    )


def test_what_lightning_says_is_explained(tmp_path):
    pytest.importorskip("pytorch_lightning")
    for mistake in _with_lightning(tmp_path):
        _explained(mistake)


def test_lightning_asks_for_an_optimizer_that_is_not_fused_in_bf16_too():
    """As the cure says."""
    pytest.importorskip("pytorch_lightning")
    weight = torch.nn.Parameter(X.clone())
    fused = torch.optim.AdamW([weight], fused=True)
    [error] = heard(lambda: _precision("bf16-mixed").clip_gradients(fused, 1.0))
    assert audit.explain(error).name == "clipping_a_fused_optimizer"

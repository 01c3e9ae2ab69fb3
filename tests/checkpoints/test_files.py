"""Checkpoints on disk, as frameworks write them: each made here by what writes it, and loaded."""

from __future__ import annotations

import json
import os
import pickle

import pytest
import torch
from torch import nn

from amp_lessons.checkpoints import load_checkpoint
from tests.measure.architectures import SIZES


def model():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.Linear(16, 4))


def assert_same(found, expected=None):
    into = model()
    into.load_state_dict(found.weights)
    state = (expected or model()).state_dict()
    assert all(torch.equal(tensor, state[name].float()) for name, tensor in found.weights.items())
    assert len(found.weights) == len(state)


def test_a_file_of_torch_save(tmp_path):
    torch.save({"model": model().half().state_dict(), "epoch": 3}, tmp_path / "last.ckpt")
    found = load_checkpoint(tmp_path / "last.ckpt")
    assert found.kind == "halved"
    assert_same(found, model().half())


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_safetensors(tmp_path, dtype):
    safetensors = pytest.importorskip("safetensors.torch")
    safetensors.save_file(model().to(dtype).state_dict(), tmp_path / "model.safetensors")
    for place in (tmp_path, tmp_path / "model.safetensors"):
        found = load_checkpoint(place)
        assert found.kind == ("fp32" if dtype is torch.float32 else "halved")
        assert_same(found, model().to(dtype))


@pytest.mark.slow
def test_accelerates_folder(tmp_path):
    accelerate = pytest.importorskip("accelerate")
    accelerator = accelerate.Accelerator(cpu=True)
    accelerator.prepare(model(), torch.optim.AdamW(model().parameters()))
    accelerator.scaler = torch.amp.GradScaler("cpu", init_scale=512.0)
    accelerator.scaler.scale(torch.ones(()))
    accelerator.save_state(str(tmp_path))
    found = load_checkpoint(tmp_path)
    assert found.kind == "torch.amp"
    assert found.scaler["scale"] == 512.0
    assert_same(found)


@pytest.mark.slow
def test_shards_of_transformers(tmp_path):
    transformers = pytest.importorskip("transformers")
    bert = transformers.BertModel(transformers.BertConfig(**SIZES, vocab_size=50))
    bert.save_pretrained(tmp_path, max_shard_size="20KB")
    shards = sorted(tmp_path.glob("*.safetensors"))
    assert len(shards) > 2
    found = load_checkpoint(tmp_path)
    bert.load_state_dict(found.weights)
    shards[1].unlink()
    with pytest.raises(ValueError, match=f"the shard {shards[1].name} is missing"):
        load_checkpoint(tmp_path)


@pytest.mark.slow
def test_lightnings(tmp_path):
    lightning = pytest.importorskip("pytorch_lightning")

    class Task(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.net = model()

        def training_step(self, batch, index):
            return self.net(batch[0]).square().mean()

        def configure_optimizers(self):
            return torch.optim.AdamW(self.parameters())

    quiet = dict.fromkeys(("logger", "enable_progress_bar", "enable_model_summary"), False)
    trainer = lightning.Trainer(max_steps=1, accelerator="cpu", default_root_dir=tmp_path, **quiet)
    task = Task()
    trainer.fit(task, torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.randn(4, 8)), 4))
    trainer.save_checkpoint(tmp_path / "task.ckpt")
    whole = load_checkpoint(tmp_path / "task.ckpt")
    said = f"Lightning {lightning.__version__} wrote it. Names begin with the attribute that holds the model"
    assert whole.sentence.endswith(f"{said}; `part` picks one.")
    assert_same(load_checkpoint(tmp_path / "task.ckpt", part="net"), task.net)
    with pytest.raises(ValueError, match="no weight is in a part 'model'; there are net"):
        load_checkpoint(tmp_path / "task.ckpt", part="model")


class Hostile:
    def __init__(self, file):
        self.file = str(file)

    def __reduce__(self):
        return os.mkdir, (self.file,)


@pytest.mark.parametrize("write", [torch.save, lambda value, file: file.write_bytes(pickle.dumps(value))])
def test_a_hostile_pickle_is_refused_and_not_run(tmp_path, write):
    file, trace = tmp_path / "model.pt", tmp_path / "it_ran"
    write({"model": model().state_dict(), "extra": Hostile(trace)}, file)
    for place in (file, tmp_path):
        with pytest.raises(ValueError, match=r"model\.pt was refused: .* a pickle can run any code"):
            load_checkpoint(place)
    assert not trace.exists()


def test_an_index_may_not_lead_elsewhere(tmp_path):
    torch.save(model().state_dict(), tmp_path / "secret.bin")
    inner = tmp_path / "inner"
    inner.mkdir()
    index = inner / "pytorch_model.bin.index.json"
    index.write_text(json.dumps({"weight_map": {"0.weight": "../secret.bin"}}), "utf-8")
    with pytest.raises(ValueError, match="not in its own folder"):
        load_checkpoint(inner)
    index.write_text("[]", "utf-8")
    with pytest.raises(ValueError, match="no index of shards"):
        load_checkpoint(index)


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("a.pt", b"", "a.pt is no file of torch.save"),
        ("a.pt", b"text", "a.pt (is no file of torch.save|was refused)"),
        ("a.safetensors", b"text that is no safetensors", "is no file of safetensors"),
        (".metadata", b"", "is a distributed checkpoint, one part per rank"),
        ("README", b"", "there is no model in"),
    ],
)
def test_what_is_no_checkpoint_gets_a_sentence(tmp_path, name, content, words):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ValueError, match=words):
        load_checkpoint(tmp_path / name if name.startswith("a.") else tmp_path)


def test_nothing_there_a_whole_model_and_a_list_are_no_checkpoint(tmp_path):
    with pytest.raises(FileNotFoundError, match="there is no checkpoint at"):
        load_checkpoint(tmp_path / "none.pt")
    torch.save(model(), tmp_path / "whole.pt")
    with pytest.raises(ValueError, match="was refused"):
        load_checkpoint(tmp_path / "whole.pt")
    torch.save([model().state_dict()], tmp_path / "a.pt")
    with pytest.raises(ValueError, match=r"a\.pt holds list"):
        load_checkpoint(tmp_path / "a.pt")

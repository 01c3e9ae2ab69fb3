"""The weights and the tokenizer that pip brings are MiniLM's, as transformers understands them."""

from __future__ import annotations

import pytest
import torch

from amp_lessons import docstrings, encoder, mnist, pretrained

pytestmark = pytest.mark.skipif(bool(pretrained.missing()), reason="needs the extra pretrained")
TEXTS = ["Return the current event loop.", "A handler that writes to a file, and rotates it: " * 6, "Ünïcode"]


@pytest.fixture(scope="module")
def theirs():
    transformers = pytest.importorskip("transformers")
    return transformers.AutoModel.from_pretrained(pretrained.minilm_folder()).eval()


def test_the_encoder_computes_what_transformers_computes(theirs):
    tokens, mask = pretrained.tokens(TEXTS, length=24)
    with torch.no_grad():
        expected = theirs(tokens, mask.long()).last_hidden_state[mask]
        torch.testing.assert_close(pretrained.minilm()(tokens, mask)[mask], expected, rtol=1e-4, atol=1e-4)


def test_no_weight_is_left_out_but_the_pooler(theirs):
    ours, expected = pretrained.minilm().state_dict(), theirs.state_dict()
    assert set(ours) == {name for name in expected if not name.startswith("pooler")}
    assert all(torch.equal(ours[name], expected[name]) for name in ours)


def test_the_tokens_are_those_of_transformers():
    tokenizer = pytest.importorskip("transformers").AutoTokenizer.from_pretrained(pretrained.minilm_folder())
    expected = tokenizer(TEXTS, padding="max_length", truncation=True, max_length=24, return_tensors="pt")
    tokens, mask = pretrained.tokens(TEXTS, length=24)
    assert torch.equal(tokens, expected.input_ids)
    assert torch.equal(mask, expected.attention_mask.bool())


def test_another_file_is_refused(monkeypatch):
    monkeypatch.setattr(pretrained, "MINILM_SHA256", "0" * 64)
    with pytest.raises(ValueError, match="not the official file"):
        pretrained._minilm_weights.__wrapped__()


def test_lower_layers_then_upper_ones_are_the_whole():
    model = pretrained.minilm()
    tokens, mask = pretrained.tokens(TEXTS, length=12)
    with torch.no_grad():
        upper = encoder.Classifier(model.layers[4:], 384, 8)
        whole = encoder.Classifier([], 384, 8)
        assert torch.equal(upper(model(tokens, mask, layers=4), mask), whole(model(tokens, mask), mask))


def test_padding_changes_nothing():
    model = pretrained.minilm()
    short, long = (pretrained.tokens(TEXTS[:1], length=length) for length in (8, 20))
    with torch.no_grad():
        a, b = (encoder.mean_of_text(model(*each), each[1]) for each in (short, long))
    torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)


def test_random_weights_depend_on_their_seed_alone():
    first, again, other = (pretrained.minilm(random_weights=True, seed=seed) for seed in (0, 0, 1))
    name = "encoder.layer.0.output.dense.weight"
    assert torch.equal(first.state_dict()[name], again.state_dict()[name])
    assert not torch.equal(first.state_dict()[name], other.state_dict()[name])
    assert first.state_dict()[name].std().item() == pytest.approx(0.02, rel=0.01)


def test_mnist_is_balanced_and_the_same_each_time():
    found = mnist.mnist()
    assert found.train.images.shape == (4000, 1, 16, 16)
    assert found.test.images.shape == (1000, 1, 16, 16)
    assert 0 <= found.train.images.min() < found.train.images.max() <= 1
    counts = torch.bincount(torch.cat([found.train.labels, found.test.labels]))
    assert counts.tolist() == [500] * 10
    assert torch.equal(found.test.images, mnist.mnist().test.images)


def test_docstrings_are_real_balanced_and_not_in_both_halves():
    found = docstrings.docstrings()
    assert len(found.train) == 896
    assert len(found.test) == 304
    train, test = (
        [{t for t, at in zip(part.texts, part.labels, strict=True) if at == label} for label in range(8)]
        for part in (found.train, found.test)
    )
    assert [*map(len, train)] == [112] * 8
    assert [*map(len, test)] == [38] * 8
    assert not any(map(set.intersection, train, test))

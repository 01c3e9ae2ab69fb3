"""What views of tests show: runs, small networks, and rates of products that take no time to measure."""

from __future__ import annotations

from functools import partial

import torch
from torch.nn import functional as F

from amp_lessons import autocast, measure
from amp_lessons.course.material import data, models
from amp_lessons.measure import Footprint, Rate, Roofline, Saved, Survey
from amp_lessons.measure.footprint import COMPUTED
from amp_lessons.measure.stopwatch import Timing

RUNS = {
    "engine in fp32": [0.8, 0.95],
    "3 bits, no correction": [0.8, 0.2],
    "the same, a quarter of the lr": [0.8, 0.9],
    "3 bits, exact ratios": [0.8, 0.1],
    "3 bits, ratios cut at 2": [0.8, 0.93],
}
IMAGES, LABELS = torch.rand(4, 64), torch.arange(4)


def batches():
    """Return batches of digits, a few."""
    return data.batches(data.digits().train, 16)[:6]


def loss_fn(output):
    return F.cross_entropy(output, LABELS)


def refused(**choice):
    raise ValueError("these tensors cannot run by the autocast rules of cpu")


NETWORKS = {
    "perceptron": partial(autocast.record, models.digits_classifier(16), IMAGES, backward=loss_fn),
    "conv net": partial(autocast.record, models.convolutional_classifier(4), IMAGES, backward=loss_fn),
    "block": partial(autocast.record, models.transformer_block(16, 2), torch.rand(2, 3, 16), backward=True),
    "refused": refused,
}

PERCEPTRON = models.digits_classifier(16)
MEMORY = {
    "perceptron": partial(measure.predict_memory, PERCEPTRON, IMAGES),
    "block": partial(measure.predict_memory, models.transformer_block(16, 2), torch.rand(2, 8, 16)),
}
_KEPT = {
    "fp32": [Saved("a", torch.float32, 60, False)],
    "fp16": [Saved("a", torch.float16, 30, False), Saved("a", torch.float16, 50, True)],
}
FOOTPRINTS = {
    name: Footprint(
        400, 400, 800, tuple(kept), {"parameters": 400, "workspace": 100}, "backward", (), COMPUTED
    )
    for name, kept in _KEPT.items()
}


def rate(operation, precision, size, flop, moved_bytes, gflop_per_s):
    timing = Timing((flop / gflop_per_s / 1e6,) * 12, "cpu")
    return Rate(operation, precision, size, flop, moved_bytes, timing)


def product(precision, size, gflop_per_s):
    itemsize = 4 if precision == "fp32" else 2
    return rate("matrix product", precision, size, 2.0 * size**3, 3 * size**2 * itemsize, gflop_per_s)


def product_rate(size, precision_name, **_):
    """Say that a product reaches 50 GFLOP/s, of size 1000 three times that."""
    return product(precision_name, size, 150.0 if size == 1000 else 50.0)


def survey(fp16=40.0):
    """Return a survey of a machine that copies 25 GB/s."""
    copies = tuple(
        Rate("copy", name, 10**8, 0.0, 10**8, Timing((4.0,) * 12, "cpu")) for name in ("fp32", "fp16")
    )
    products = (product("fp32", 256, 90.0), product("fp32", 512, 100.0), product("fp16", 512, fp16))
    operations = (
        rate("matrix product", "fp32", 1024, 1e9, 10**7, 95.0),
        rate("attention", "fp32", 1024, 1e9, 10**7, 60.0),
        rate("LayerNorm", "fp16", 1024, 1e7, 10**7, 20.0),
        rate("addition", "fp32", 1024, 1e6, 12 * 10**6, 2.0),
    )
    return Survey(Roofline("cpu", products, copies), operations)

"""Time, memory and throughput, measured honestly, and memory predicted without running anything."""

from amp_lessons.devices import fp32_products
from amp_lessons.measure.batch import LargestBatch, predict_largest_batch, search_largest_batch
from amp_lessons.measure.bounds import GPUS, Bound, DataSheet, predict_bound
from amp_lessons.measure.decoding import Decoding, NoDecoderError, Part, Served, decoding_of
from amp_lessons.measure.footprint import KINDS, Footprint, Moment, Saved
from amp_lessons.measure.memory import (
    OPTIMIZERS,
    OptimizerBytes,
    measure_memory,
    optimizer_bytes,
    predict_memory,
    saved_activation_bytes,
)
from amp_lessons.measure.operations import OPERATIONS, Operation, Survey, operation_rates, survey
from amp_lessons.measure.rates import (
    Promise,
    Rate,
    Roof,
    Roofline,
    copy_rates,
    precisions_on,
    product_intensity,
    product_rate,
    product_rates,
    roofline,
)
from amp_lessons.measure.stopwatch import Difference, Timing, time_step, time_steps
from amp_lessons.precisions import PRECISIONS, Precision, precision

__all__ = [
    "GPUS",
    "KINDS",
    "OPERATIONS",
    "OPTIMIZERS",
    "PRECISIONS",
    "Bound",
    "DataSheet",
    "Decoding",
    "Difference",
    "Footprint",
    "LargestBatch",
    "Moment",
    "NoDecoderError",
    "Operation",
    "OptimizerBytes",
    "Part",
    "Precision",
    "Promise",
    "Rate",
    "Roof",
    "Roofline",
    "Saved",
    "Served",
    "Survey",
    "Timing",
    "copy_rates",
    "decoding_of",
    "fp32_products",
    "measure_memory",
    "operation_rates",
    "optimizer_bytes",
    "precision",
    "precisions_on",
    "predict_bound",
    "predict_largest_batch",
    "predict_memory",
    "product_intensity",
    "product_rate",
    "product_rates",
    "roofline",
    "saved_activation_bytes",
    "search_largest_batch",
    "survey",
    "time_step",
    "time_steps",
]

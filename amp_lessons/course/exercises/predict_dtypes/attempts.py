"""Wrong and right predictions."""

from __future__ import annotations

from types import MappingProxyType

import torch

from amp_lessons.course.exercises import shelf
from amp_lessons.course.exercises.attempt_table import Table

TABLE = Table("predict_dtypes")
ANSWER = shelf.find("predict_dtypes").solution
HALF, SINGLE = torch.float16, torch.float32


def wrong(name, code, word, **changes):
    TABLE.wrong[name] = (code, word, {**ANSWER, **{_OPERATION[key]: value for key, value in changes.items()}})


_OPERATION = {
    "matmul": "w @ w",
    "sqrt": "h.sqrt()",
    "rsqrt": "h.rsqrt()",
    "cumsum": "h.cumsum(0)",
    "std": "h.std()",
    "log_softmax": "h.log_softmax(-1)",
    "norm": "F.group_norm(h, 2)",
    "batch_norm": "F.batch_norm(h, mean, var)",
    "residual": "h + w[:4]",
    "loss": "F.cross_entropy(h, y)",
}

wrong("matmul_follows_its_inputs", "wrong_dtype", "list for lower precision", matmul=SINGLE)
wrong("batch_norm_in_float32", "wrong_dtype", "given is in fp16 and fp32", batch_norm=SINGLE)
wrong("std_as_norm", "wrong_dtype", "h.std()", std=SINGLE)
wrong("log_softmax_as_on_the_cpu", "wrong_dtype", "fp32 list", log_softmax=HALF)
wrong("rsqrt_as_sqrt", "wrong_dtype", "h.rsqrt()", rsqrt=HALF)
wrong("residual_in_half", "wrong_dtype", "given is in fp16 and fp32", residual="float16")
wrong("loss_in_half", "wrong_dtype", "nll_loss, which it calls, is in the fp32 list", loss="half")
wrong("sqrt_in_float32", "wrong_dtype", "sqrt is in no list, and what it is given is in fp16", sqrt=SINGLE)
wrong("bfloat16_somewhere", "wrong_dtype", "h.sqrt() returns", sqrt=torch.bfloat16)
wrong("a_number", "not_a_dtype", "int 16", cumsum=16)
wrong("a_word", "not_a_dtype", "str", norm="double trouble")
wrong("one_left_open", "missing", "h.cumsum(0)", cumsum=...)
TABLE.wrong["another_key"] = ("unknown_operation", "relu", {**ANSWER, "relu": HALF})
TABLE.wrong["all_float32"] = ("wrong_dtype", "F.linear", dict.fromkeys(ANSWER, SINGLE))
TABLE.wrong["a_list"] = ("not_a_dict", "list", list(ANSWER.values()))

TABLE.right["the_solution"] = ((), ANSWER)
TABLE.right["as_text"] = ((), {name: str(dtype) for name, dtype in ANSWER.items()})
TABLE.right["as_short_text"] = ((), {n: "fp16" if d == HALF else "FP32" for n, d in ANSWER.items()})
TABLE.right["from_a_function"] = ((), lambda: dict(ANSWER))
TABLE.right["a_read_only_mapping"] = ((), MappingProxyType(ANSWER))

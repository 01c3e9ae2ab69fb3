"""Tensors of two dtypes that met where no autocast brings them together; numbers that 16 bits cannot hold."""

from __future__ import annotations

from amp_lessons.audit.explaining.message import Message

_FLOAT = r"(c10::|torch\.)?(Float|float|Half|BFloat16|Double|double|float16|float32|bfloat16)"

_TENSOR = r"torch\.(cuda\.)?(Half|BFloat16|Float|Double)Tensor"

DTYPES = (
    Message(
        name="product_of_two_dtypes",
        patterns=(
            r"[Ee]xpected (m1 and m2|mat1 and mat2|mat_a and mat_b) to have the same dtype",
            r"(mat1|self) and (mat2|vec) must have the same dtype",
            r"addmv input tensors must have the same dtype",
            r"both (vectors to have|inputs should have) same dtype",
            rf"expected scalar type {_FLOAT} but found {_FLOAT}",
        ),
        meaning="A matrix product got a 16-bit and a 32-bit tensor. Autocast would have cast both, so it "
        "was not on where this ran: outside the `with` block (inference after training, say), in an "
        "`enabled=False` region, in another thread, in the backward of a custom `autograd.Function`, or "
        "for another device type. Some products it never casts, `F.grouped_mm` for one.",
        cure="Bring the call under autocast. In an `enabled=False` region cast the inputs, "
        "`layer(x.float())`. On a custom function put `@torch.amp.custom_fwd(device_type=...)` and "
        "`custom_bwd`. Without autocast, and where it does not cast, `x.to(layer.weight.dtype)`.",
        lesson="02",
        source="C++",
        seen_at="https://github.com/pytorch/pytorch/issues/42358",
    ),
    Message(
        name="layer_of_another_dtype",
        patterns=(
            r"Input type \(\S+\) and (weight|bias) type \(\S+\) should be the same",
            r"RNN input dtype \(\S+\) does not match weight dtype",
            r"[Ii]nput and (hidden|parameter) tensors are not the same dtype",
            rf"prelu: Type promoting not supported\. Got {_FLOAT} and {_FLOAT}",
            rf"to have the same type as .* but type {_TENSOR} does not equal {_TENSOR}",
        ),
        meaning="The layer's weights have another dtype (or device) than what it was given, and autocast "
        "was not on to cast either. Usually the model was cast with `half()` and the batch was not, or the "
        "other way.",
        cure="Keep model and batch in fp32 and run the forward pass under autocast. For inference in 16 "
        "bits cast the batch too: `x.to(next(model.parameters()).dtype)`.",
        lesson="02",
        source="C++",
        unless=(
            r"found input tensor with Double",
            # one dtype, on two devices
            r"Input type \((torch\.|cuda\.|MPS)*([A-Z]\w*?)(Tensor|Type)\) and (weight|bias) type "
            r"\((torch\.|cuda\.|MPS)*\2(Tensor|Type)\)",
        ),
    ),
    Message(
        name="norm_of_two_dtypes",
        patterns=(r"mixed dtype \(CPU\)",),
        meaning="A normalisation on the CPU takes 16-bit inputs with fp32 parameters, and not 16-bit "
        "parameters with fp32 inputs: `half()` has cast the layer.",
        cure="Keep the normalisation's parameters in fp32, `norm.float()`, whatever the rest is in. Under "
        "autocast the whole model stays in fp32.",
        lesson="02",
        source="C++",
    ),
    Message(
        name="norm_in_several_kernels",
        patterns=(r"Mismatch dtype between input and weight: .* Cannot dispatch to fused implementation",),
        meaning="`rms_norm` got 16-bit inputs and an fp32 weight. The result is right; it comes from "
        "several kernels where one fused kernel would do, so it takes longer. Under autocast it happens "
        "behind every linear layer; newer versions cast for it on CUDA.",
        cure="Nothing to do for right numbers. For speed run the model under `torch.compile`, which fuses "
        "it, or give the norm fp32, `norm(x.float())`, with autocast off around it.",
        lesson="05",
        source="C++",
        seen_at="https://github.com/pytorch/pytorch/issues/167308",
    ),
    Message(
        name="compared_in_two_dtypes",
        patterns=(rf"(^|: ){_FLOAT} did not match {_FLOAT}$",),
        meaning="`torch.allclose` and `isclose` compare two tensors of one dtype only.",
        cure="`torch.testing.assert_close(half, exact, check_dtype=False)`, which takes the tolerance of "
        "the narrower format, or `torch.allclose(half.float(), exact, rtol=1e-3)` (1e-2 for bf16): the "
        "1e-5 that it takes by itself is made for fp32.",
        lesson="01",
        source="C++",
    ),
    Message(
        name="attention_of_two_dtypes",
        patterns=(
            r"Expected query, key, and value to have the same dtype",
            r"query must be FP32, FP64, BF16, FP16",
            r"FlexAttention for CPU device",
            r"flex_attention on MPS supports",
        ),
        meaning="Query, key and value have different dtypes, or one that attention does not take. A "
        "normalisation or a rotary embedding of queries and keys has often brought two of them to fp32, "
        "and the values stayed in 16 bits.",
        cure="Cast after it: `q, k = q.to(v.dtype), k.to(v.dtype)`.",
        lesson="07",
        source="torch/nn/attention/_utils.py",
    ),
    Message(
        name="written_into_another_dtype",
        patterns=(
            r"Index put requires the source and destination dtypes match",
            r"scatter\(\): Expected self\.dtype to be equal to src\.dtype",
            r"index_(add|copy)_?\(\): self .*and source .*(same scalar type|same dtype)",
            r"masked_scatter: expected self and source to have same dtypes",
            r"put_\(\): self and source expected to have the same dtype",
        ),
        meaning="Values were written into a tensor of another dtype. Under autocast this happens when the "
        "tensor was made by `torch.zeros(...)`, which is fp32, and the values come out of a layer, in 16 "
        "bits: writing does not cast.",
        cure="Make the tensor like its values, `torch.zeros(..., dtype=values.dtype)`, or cast them: "
        "`out[index] = values.to(out.dtype)`. To add many values up, keep `out` in fp32.",
        lesson="02",
        source="C++",
        seen_at="https://github.com/pytorch/pytorch/issues/81876",
    ),
    Message(
        name="out_of_another_dtype",
        patterns=(r"Expected out tensor to have dtype \S+, but got \S+ instead",),
        meaning="A result was to be written into a tensor, `out=`, of another dtype, and that does not cast. "
        "Backward passes written by hand do so when a model in 16 bits has adapters in fp32 (Unsloth's, in "
        "2024).",
        cure="Make the tensor with the dtype of the product's inputs, or leave `out=` away. With Unsloth "
        "update it, or bring adapters and model to one dtype.",
        lesson="02",
        source="C++",
        seen_at="https://github.com/unslothai/unsloth/issues/1184",
    ),
    Message(
        name="result_of_another_dtype",
        patterns=(rf"result type {_FLOAT} can't be cast to the desired output type",),
        meaning="An operation in place would put fractions into whole numbers. It has to do with mixed "
        "precision only where a tensor of another kind was expected, labels that were cast for instance.",
        cure="Leave labels, indices and masks as they are: only floating-point inputs are cast, and "
        "autocast does that.",
        lesson="02",
        source="C++",
    ),
    Message(
        name="loss_of_two_dtypes",
        patterns=(rf"Found dtype {_FLOAT} but expected {_FLOAT}",),
        meaning="In a loss, prediction and target have different dtypes, so a gradient would have another "
        "dtype than its tensor. The loss was computed outside autocast on 16-bit outputs, or the target "
        "was left in fp64 by numpy.",
        cure="Compute the loss inside the autocast block, or in fp32, `loss_fn(output.float(), "
        "target.float())`.",
        lesson="03",
        source="C++",
        seen_at="https://github.com/Lightning-AI/pytorch-lightning/issues/16303",
    ),
    Message(
        name="gradient_of_another_dtype",
        patterns=(
            r"attempting to assign a gradient with dtype",
            r"assigned grad has data of a different type",
            r"Cannot set grad_dtype to",
        ),
        meaning="A gradient in another dtype than its parameter's was set: by hand, or by a library (FSDP "
        "under a compiler has done it). A parameter's gradient has the parameter's dtype, fp32 under "
        "autocast, unless `grad_dtype` asked for another one before there was a gradient.",
        cure="Cast it: `p.grad = gradient.to(p.dtype)`, after it is unscaled. Set `p.grad_dtype` while "
        "`p.grad` is None.",
        lesson="03",
        source="C++",
    ),
    Message(
        name="numpy_has_no_bf16",
        patterns=(r"Got unsupported ScalarType (BFloat16|Float8_\w+|Float4_\w+)",),
        meaning="NumPy has no such number format, and a tensor in it was to become an array. The outputs "
        "of a model under autocast are in 16 bits.",
        cure="`tensor.float().numpy()`; also for matplotlib, scikit-learn and pandas, which ask NumPy. "
        "Metrics are better summed in fp32 anyway.",
        lesson="01",
        source="C++",
        seen_at="https://github.com/deepspeedai/DeepSpeedExamples/pull/754",
    ),
    Message(
        name="result_dtype_of_a_product",
        patterns=(
            r"out_dtype (must be the same as input dtype or fp32|only supported for torch\.float32)",
            r"out_dtype must be float32 for fp8 inputs",
            r"Grouped gemm output dtype must match",
            r"If output dtype provided, it must be torch\.bfloat16",
            r"linear_cross_entropy supports \S+ acc_dtype",
            r"acc_dtype must be one of",
        ),
        meaning="A product can hand back its input's dtype, or fp32 from 16-bit inputs: no other dtype was "
        "built in for its result or its sums.",
        cure="Leave the argument out, or ask for `torch.float32`.",
        lesson="05",
        source="torch/_meta_registrations.py",
    ),
)


RANGES = (
    Message(
        name="constant_too_large",
        patterns=(r"value cannot be converted to type (c10|at)::(Half|BFloat16) without overflow",),
        meaning="A constant is too large for the tensor's format: fp16 ends at 65,504. The classic is a "
        "mask, `scores.masked_fill(mask, -1e9)`, on scores that autocast made fp16.",
        cure="`scores.masked_fill(mask, torch.finfo(scores.dtype).min)`, or hand a bool mask to "
        "`F.scaled_dot_product_attention`. Never add `finfo.min` to scores: the sum overflows to -inf.",
        lesson="01",
        source="C++",
        seen_at="https://github.com/NVIDIA/apex/issues/1052",
    ),
    Message(
        name="probabilities_not_finite",
        patterns=(r"probability tensor contains either `?inf`?, `?nan`? or element < 0",),
        meaning="Sampling got probabilities that are not finite. In 16 bits: logits that overflowed fp16 "
        "(inf minus inf is NaN in softmax), or a row whose every entry is masked.",
        cure="Sample from fp32: `torch.softmax(logits.float(), -1)`. If the logits themselves are not "
        "finite, the overflow is in the forward pass: take bf16, which has the range of fp32.",
        lesson="01",
        source="C++",
    ),
    Message(
        name="invalid_distribution",
        patterns=(
            r"Expected parameter \S+ .* of distribution .* to satisfy the constraint .* but found invalid",
        ),
        meaning="A distribution got parameters outside its range, often NaN. In 16 bits a variance "
        "underflows to 0, a probability rounds to exactly 1, and logits overflow.",
        cure="Make distributions from fp32, `Normal(mean.float(), std.float())`, in an `enabled=False` "
        "region.",
        lesson="01",
        source="torch/distributions/distribution.py",
    ),
)

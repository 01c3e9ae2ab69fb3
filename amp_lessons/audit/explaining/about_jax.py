"""JAX and the compiler XLA: two dtypes that met where nothing brings them together."""

from __future__ import annotations

from amp_lessons.audit.explaining.message import Message

JAX = (
    Message(
        name="lax_of_two_dtypes",
        patterns=(r"lax\.\w+ requires arguments to have the same dtypes, got [^.]*float\w+, [^.]*float\d",),
        meaning="Functions of `jax.lax` cast nothing, unlike those of `jax.numpy`, and two float dtypes met "
        "in one: a 16-bit tensor with an fp32 parameter, a loss scale or an optimizer's state.",
        cure="Cast one of them, `x.astype(y.dtype)`, or call the function of `jax.numpy` that the message "
        "names, which gives the wider dtype.",
        lesson="02",
        source="jax/_src/lax/lax.py",
        seen_at="https://github.com/google-deepmind/jmp/issues/47",
    ),
    Message(
        name="branches_of_two_dtypes",
        patterns=(
            r"has type b?float\d+\S* but the corresponding output .*has type b?float\d+\S*, so the dtypes do "
            r"not match",
            r"DIFFERENT ShapedArray\((b?float\d+)\[[^\]]*\][^)]*\) vs\. ShapedArray\((?!\1\[)b?float\d+",
        ),
        meaning="The two branches of `jax.lax.cond`, or the carry of a loop before and after its body, "
        "differ in dtype, and JAX casts neither. Often parameters are bf16, and the optimizer's state or "
        "its updates fp32.",
        cure="Cast what comes out to the dtype of the other branch, or of what went in: "
        "`jax.tree.map(lambda new, old: new.astype(old.dtype), new, old)`. For an optimizer keep the "
        "parameters in fp32 and cast them for the forward pass.",
        lesson="04",
        source="jax/_src/lax/control_flow/conditionals.py",
        seen_at="https://github.com/google-deepmind/optax/issues/1038",
    ),
    Message(
        name="xla_of_two_dtypes",
        patterns=(r"Seen floating point types of different precisions in",),
        meaning="XLA was given an operation whose inputs have two float dtypes, which the framework above it "
        "(PyTorch/XLA, JAX, TensorFlow) should have cast: the message shows both, such as `f32` and "
        "`bf16`.",
        cure="Cast the inputs of that operation to one dtype, and `model.to(torch.bfloat16)` with its "
        "buffers. Where all are of one dtype already, the fault is the framework's: update it.",
        lesson="02",
        source="xla/service/hlo_verifier.cc",
        seen_at="https://github.com/pytorch/xla/issues/6521",
    ),
)

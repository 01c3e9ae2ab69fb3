"""Mixed precision over several processes: FSDP and what goes over the wire."""

from __future__ import annotations

from amp_lessons.audit.explaining.message import Message

SHARDING = (
    Message(
        name="shards_of_two_dtypes",
        patterns=(
            r"FSDP expects uniform (original parameter|reduce) dtype",
            r"(Must flatten tensors with|requires) uniform dtype but got",
            r"Cannot flatten integer dtype tensors",
        ),
        meaning="Parameters that FSDP shards together have different dtypes: part of the model was loaded "
        "in 16 bits, or adapters in fp32 were added to it.",
        cure="Bring all to fp32 before sharding, `model.float()`, and let the policy cast, "
        "`MixedPrecisionPolicy(param_dtype=torch.bfloat16)`. What must keep another dtype is wrapped on "
        "its own.",
        lesson="08",
        source="torch/distributed/fsdp/_fully_shard/_fsdp_param_group.py",
        seen_at="https://github.com/huggingface/accelerate/issues/1620",
    ),
    Message(
        name="norms_kept_out_of_16_bits",
        patterns=(r"Both mixed precision and an auto_wrap_policy were specified to FSDP",),
        meaning="FSDP has kept batch normalisation (or the classes that the policy names) in fp32, each as "
        "an instance of its own. That is usually what one wants.",
        cure="Nothing to do. To choose yourself, give `MixedPrecision(_module_classes_to_ignore=...)`, or "
        "take `fully_shard`, which leaves the choice to you.",
        lesson="08",
        source="torch/distributed/fsdp/_wrap_utils.py",
    ),
    Message(
        name="sharding_policy",
        patterns=(
            r"Invalid fsdp_pre_all_gather",
            r"Expected _(fwd_bwd_param|reduce)_dtype to be not None",
            r"Expected buffers and buffer_dtypes to have the same length",
        ),
        meaning="FSDP's mixed precision policy and the module do not fit: an extension has another "
        "signature, or the policy was changed after sharding.",
        cure="Give the policy when the module is sharded and leave it. An extension such as torchao's "
        "float8 has to fit the version of PyTorch: update both.",
        lesson="08",
        source="torch/distributed/fsdp/_fully_shard/_fsdp_param.py",
    ),
    Message(
        name="reduced_in_two_dtypes",
        patterns=(
            r"Invalid usage of tensors with different dtypes",
            r"Invalid scale shape for fp8 all-gather",
        ),
        meaning="The ranks, or the tensors of one call, brought different dtypes to a collective.",
        cure="Cast before the call, on every rank alike; reduce gradients in fp32 where there are many "
        "ranks.",
        lesson="08",
        source="torch/distributed/distributed_c10d.py",
    ),
)

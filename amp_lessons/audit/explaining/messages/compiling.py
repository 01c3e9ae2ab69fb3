"""Autocast in what is captured: compiled, exported or recorded as a CUDA graph."""

from __future__ import annotations

from amp_lessons.audit.explaining.message import Message

COMPILING = (
    Message(
        name="autocast_in_compiled_code",
        patterns=(
            r"wrap_with_autocast",
            r"unexpected autocast function",
            r"AOTAutograd does not support tracing graphs that mutate the autocast state",
            r"expected backward_pass_autocast to be",
        ),
        meaning="`torch.compile` met a use of autocast that it cannot put into its graph: settings changed "
        "without a `with` block, or arguments that are computed while it runs.",
        cure="Put `with torch.autocast(...)` around the call of the compiled model, with constant arguments.",
        lesson="05",
        source="torch/_functorch/_aot_autograd/collect_metadata_analysis.py",
    ),
    Message(
        name="autocast_in_exported_code",
        patterns=(
            r"expected (enter|exit)_autocast node",
            r"exit_autocast_node\.args",
            r"enter_autocast_node_stack",
            r"autocast must exit",
            r"autocast or set_grad_enabled require monotonically",
            r"Expected 1 arg for _exit_autocast",
        ),
        meaning="Exporting or splitting a graph came upon an autocast region that does not begin and end "
        "in one piece.",
        cure="Export the model without autocast in it: autocast around the call of what was exported, or "
        "the model cast to the dtype it shall run in. A region that stays has to begin and end within one "
        "forward.",
        lesson="05",
        source="torch/_export/passes/replace_autocast_with_hop_pass.py",
    ),
    Message(
        name="autocast_cache_in_a_cuda_graph",
        patterns=(r"make_graphed_callables does not support the autocast caching",),
        meaning="A recorded CUDA graph would read weights from autocast's cache, which is emptied when the "
        "block ends.",
        cure="`with torch.autocast('cuda', cache_enabled=False):` around the recording and the calls.",
        lesson="05",
        source="torch/cuda/graphs.py",
    ),
)

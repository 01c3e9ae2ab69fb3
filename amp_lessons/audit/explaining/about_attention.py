"""Attention: the kernels that take 16 bits only, and the masks that go with them.

``source`` may be a framework's file, as in ``about_frameworks``.
"""

from __future__ import annotations

from amp_lessons.audit.explaining.message import Message

ATTENTION = (
    Message(
        name="flash_attention_in_fp32",
        patterns=(
            r"FlashAttention only supports? fp16 and bf16 data type",
            r"Flash Attention \S+ only supports torch\.float16 and torch\.bfloat16 dtypes",
        ),
        meaning="FlashAttention was given fp32. Its kernels take 16 bits or fewer: the products run on "
        "tensor cores, and the softmax's running state is kept in fp32 inside.",
        cure="Run the model under `torch.autocast`, or load it with `dtype=torch.bfloat16`. If only "
        "some of query, key and value are fp32, find what made them so: often a rotary embedding "
        "or a norm in fp32, behind which a cast is missing.",
        lesson="02",
        source="flash_attn: csrc/flash_attn/flash_api.cpp",
    ),
    Message(
        name="flash_attention_without_dtype",
        patterns=(r"attempting to use Flash Attention \S+ without specifying a (torch )?dtype",),
        meaning="The configuration of the model, or of a part of it, names no dtype. FlashAttention takes "
        "16 bits only, and weights without a dtype are made in fp32. It is a warning: under autocast, or "
        "cast afterwards, the model runs, and a model of several parts may give it although a dtype was "
        "said.",
        cure="To run in 16 bits say `from_pretrained(..., dtype=torch.bfloat16)` (in old versions "
        "`torch_dtype=`), and look whether it was heard: `{p.dtype for p in model.parameters()}`. To train "
        "in mixed precision keep fp32 weights, run under `torch.autocast`, and leave the warning.",
        lesson="07",
        source="transformers/modeling_utils.py",
        seen_at="https://github.com/huggingface/transformers/issues/34269",
    ),
    Message(
        name="no_xformers_kernel",
        patterns=(r"No operator found for `memory_efficient_attention_(forward|backward)`",),
        meaning="xformers lists its attention kernels, and why each does not take these inputs: a dtype, "
        "the size of a head, a bias, a GPU too old or too new for it, a CPU. `dtype=torch.float32 "
        "(supported: {torch.bfloat16, torch.float16})` says that this one wants 16 bits, and on the newest "
        "GPUs none may be left for fp32.",
        cure="If the dtype is among the reasons, run under `torch.autocast` or in bf16; mind that "
        "validation runs under it too. Else leave xformers for `F.scaled_dot_product_attention`.",
        lesson="07",
        source="xformers/ops/fmha/dispatch.py",
        seen_at="https://github.com/facebookresearch/xformers/issues/1109",
    ),
    Message(
        name="queries_cast_back",
        patterns=(
            r"Casting fp32 inputs back to \S+ for flash-attn compatibility",
            r"input hidden states seems to be silently casted in float32",
        ),
        meaning="Queries, keys and values came to FlashAttention in fp32 and are cast to 16 bits again. "
        "Something before it has made them fp32: mostly norms or embeddings that were cast to fp32 to "
        "train adapters (`prepare_model_for_kbit_training` does that).",
        cure="Nothing to do for the numbers: attention computes in 16 bits as it would have. To spare the "
        "casts run under `torch.autocast`, or leave the norms in the model's dtype.",
        lesson="07",
        source="transformers/modeling_flash_attention_utils.py",
    ),
    Message(
        name="mask_of_another_dtype",
        patterns=(r"Expected attn_mask dtype to be bool or (float or )?to match query dtype",),
        meaning="The mask has one 16-bit dtype and the queries another one, or the mask is made of "
        "integers. Older versions of PyTorch refuse an fp32 mask beside 16-bit queries, too. Often the "
        "mask was made before the model was cast, or outside autocast.",
        cure="Hand over a bool mask, True where attention may look: it fits every dtype. Else "
        "`mask.to(query.dtype)`, filled with -inf, or with `torch.finfo(query.dtype).min` taken after the "
        "cast.",
        lesson="07",
        source="C++",
        seen_at="https://github.com/mahmoodlab/TITAN/issues/11",
    ),
    Message(
        name="no_attention_kernel",
        patterns=(
            r"No available kernel\. Aborting execution",
            r"Expected query, key and value to all be of dtype: \{",
        ),
        meaning="`scaled_dot_product_attention` may use some kernels only (`sdpa_kernel(...)` says which), "
        "and none of them takes these inputs. Often it is the dtype: on CUDA, FlashAttention and cuDNN "
        "want 16 bits. Else it is an older GPU, a mask, the size of a head, or a tensor that has not four "
        "dimensions.",
        cure="Read the warnings right before the error: they say why each kernel was left out. If it is "
        "the dtype, run under `torch.autocast` or cast queries, keys and values; else allow another kernel "
        "too, `sdpa_kernel([SDPBackend.FLASH_ATTENTION, SDPBackend.MATH])`.",
        lesson="07",
        source="C++",
        seen_at="https://github.com/lucidrains/denoising-diffusion-pytorch/issues/239",
    ),
)

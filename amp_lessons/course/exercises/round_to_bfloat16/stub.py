def round_to_bfloat16(x):
    """Round an fp32 tensor to the nearest bf16 values, ties to even; return them as fp32."""
    raise NotImplementedError

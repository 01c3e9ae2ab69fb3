def round_to_bfloat16(x):
    """Round a float32 tensor to the nearest bfloat16 values, ties to even; return them as float32."""
    raise NotImplementedError

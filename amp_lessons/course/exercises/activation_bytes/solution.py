def activation_bytes(layer, tokens, width, autocast):
    """Return the bytes that ``layer`` saves for backward, of parameters only their fp16 copies."""
    elements = tokens * width
    size = 2 if autocast else 4
    if layer == "linear":
        # its input, its weight's copy
        return elements * size + (width * width * 2 if autocast else 0)
    if layer in ("relu", "gelu"):
        return elements * size  # the output of one, the input of the other
    if layer == "layer_norm":
        # its input in fp32, and mean and deviation of each token
        return elements * 4 + 2 * tokens * 4
    if layer == "softmax":
        return elements * 4  # its output, in fp32
    return elements  # dropout: a mask

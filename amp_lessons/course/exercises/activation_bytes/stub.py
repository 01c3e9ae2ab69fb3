def activation_bytes(layer, tokens, width, autocast):
    """Return the bytes, an int, kept by linear, relu, gelu, layer_norm, softmax or dropout."""
    raise NotImplementedError

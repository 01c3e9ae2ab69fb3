"""Which dtype autocast picks for an operation on a device: two witnesses, the kernels and the header."""

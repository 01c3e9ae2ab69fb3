"""CUDA's autocast rules and the behaviour of its kernels, on the CPU."""

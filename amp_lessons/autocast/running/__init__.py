"""Run a model once, watched, and leave no trace; on real or on fake tensors."""

"""Measure what a training's gradients, weights and activations are, at the steps that are sampled."""

"""Compute results as pictures with captions."""

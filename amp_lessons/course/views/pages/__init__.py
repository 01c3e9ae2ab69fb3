"""Whole pages that stand alone: HTML with everything in it, for a browser without a network."""

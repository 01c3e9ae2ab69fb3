"""Figures as pictures, and the one palette, for instruments and course."""

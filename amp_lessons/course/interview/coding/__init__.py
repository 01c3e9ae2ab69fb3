"""Code under a clock: what interviews ask for in it, and rounds of it.

- ``review``: a loop with three to seven bugs drawn by a seed, to be found by line and cause, then mended.
- ``tasks``: what may be asked for, and drawing one that fits a time.
- ``rounds``: one task, a clock that shows and never ends, tries, hints, and a report; kept on disk.
"""

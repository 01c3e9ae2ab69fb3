"""What an output line begins with when it may differ from the stored one; the notebook tests skip it."""

from __future__ import annotations

MEASURED = "[measured]"  # on the machine that ran it
COMPUTED = "[computed]"  # without any particular hardware, by the rules of the PyTorch that is installed

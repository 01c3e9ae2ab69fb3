"""What an output line begins with when it may differ from the stored one; the notebook tests skip it."""

from __future__ import annotations

MEASURED_MARK = "[measured]"  # on the machine that ran it
COMPUTED_MARK = "[computed]"  # without any particular hardware, by the rules of the PyTorch that is installed

"""What a scaler's state is, in a worker: given, written to a file and read again, and handed on."""

from __future__ import annotations

import io
from typing import Any

import torch

from amp_lessons._base.text.describing import describe


class Saved:
    """A scaler's state, and what a file gives back of it; ``refused`` says why nothing comes back."""

    def __init__(self, scaler: Any) -> None:
        self.state: Any = scaler.state_dict()
        self.loaded: Any = None
        self.refused = ""
        if not isinstance(self.state, dict) or not self.state:
            self.refused = f"state_dict returned {describe(self.state)}"
            return
        file = io.BytesIO()
        try:
            torch.save(self.state, file)
            file.seek(0)
            self.loaded = torch.load(file, weights_only=True)
        except Exception as error:  # whatever pickling the learner's object raises
            words = describe(str(error))
            self.refused = f"the state does not come back from torch.save and torch.load: {words}"

    def why_refused(self) -> str:
        """Return why the state is none that a file gives back; "" where it is."""
        return self.refused

    def changed(self) -> list[str]:
        """Return what of the state is no longer what it was when it was written."""
        return [repr(name) for name, value in self.loaded.items() if self.state.get(name) != value]

    def hand_on(self, scaler: Any) -> None:
        """Let another scaler load it."""
        scaler.load_state_dict(self.loaded)

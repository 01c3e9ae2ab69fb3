"""The same training again with one thing changed, and what of a loss that difference explains."""

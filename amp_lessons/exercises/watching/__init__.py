"""Record what a training loop really does: the tape of its events, and the spies that write it."""

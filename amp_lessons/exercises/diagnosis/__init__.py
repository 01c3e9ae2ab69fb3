"""From what a training loop did to what is wrong with it: one finding per mistake, the root cause first."""

"""From what a training loop did to what is wrong with it."""

"""What watches a training loop, whoever wrote it, and says what is wrong with it."""

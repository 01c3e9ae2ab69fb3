"""What the exercises share that ask for eight bits: PyTorch's casts, watched, and mistakes with scales."""

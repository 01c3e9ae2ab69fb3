"""What the exercises share that ask for a training loop: test bed, examination, mistakes."""

"""What all rooms use: running somebody's function in a process of its own."""

"""What the exercises share whose stub runs, and is wrong: their cases, what shows of them, their variants."""

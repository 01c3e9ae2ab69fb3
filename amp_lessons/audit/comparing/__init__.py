"""Recording two runs of a training in little room, and finding where they part."""

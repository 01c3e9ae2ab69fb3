"""What the lessons train: data, models, and the loops that race."""

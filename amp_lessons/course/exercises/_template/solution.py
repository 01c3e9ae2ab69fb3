def exercise_id(x):
    """Return twice the values of a tensor, in its dtype."""
    return x * 2

"""What a learner sees of a check: findings, reports, hints, solutions, and how they are rendered."""

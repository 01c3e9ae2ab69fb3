"""What is kept on disk: the learner's progress, whole files, locks."""

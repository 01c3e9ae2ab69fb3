"""A JupyterHub for a class on one ordinary Linux machine: every learner apart, and within limits."""

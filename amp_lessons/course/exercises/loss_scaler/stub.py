class LossScaler:
    def __init__(self, init_scale=2.0**16, growth_factor=2.0, backoff_factor=0.5,
                 growth_interval=2000):
        raise NotImplementedError

    def scale(self, loss):
        """Return the loss multiplied by the scale."""
        raise NotImplementedError

    def unscale_(self, optimizer):
        """Divide the optimizer's gradients by the scale, in place; note any inf or NaN."""
        raise NotImplementedError

    def step(self, optimizer):
        """Unscale, unless that has been done, and step unless a gradient is inf or NaN."""
        raise NotImplementedError

    def update(self):
        """Lower the scale after an overflow, raise it after growth_interval clean iterations."""
        raise NotImplementedError

    def get_scale(self):
        """Return the scale as a float."""
        raise NotImplementedError

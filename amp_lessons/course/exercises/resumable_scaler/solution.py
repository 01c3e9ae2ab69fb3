class LossScaler:
    """Scale the loss, unscale the gradients, skip steps that overflowed, adapt the scale."""

    def __init__(self, init_scale=2.0**16, growth_factor=2.0, backoff_factor=0.5,
                 growth_interval=2000):
        self._scale = init_scale
        self._growth_factor = growth_factor
        self._backoff_factor = backoff_factor
        self._growth_interval = growth_interval
        self._clean_steps = 0
        self._unscaled = False
        self._overflow = False

    def scale(self, loss):
        """Return the loss multiplied by the scale."""
        return loss * self._scale

    def unscale_(self, optimizer):
        """Divide the optimizer's gradients by the scale, in place; note any inf or NaN."""
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    parameter.grad /= self._scale
                    self._overflow |= not parameter.grad.isfinite().all().item()
        self._unscaled = True

    def step(self, optimizer):
        """Unscale, unless that has been done, and step unless a gradient is inf or NaN."""
        if not self._unscaled:
            self.unscale_(optimizer)
        if not self._overflow:
            optimizer.step()

    def update(self):
        """Lower the scale after an overflow; raise it after growth_interval steps in a row without one."""
        if self._overflow:
            self._scale *= self._backoff_factor
            self._clean_steps = 0
        else:
            self._clean_steps += 1
            if self._clean_steps == self._growth_interval:
                self._scale *= self._growth_factor
                self._clean_steps = 0
        self._unscaled = self._overflow = False

    def get_scale(self):
        """Return the scale as a float."""
        return self._scale

    def state_dict(self):
        """Return all that another scaler needs to go on as this one would, as numbers in a dict."""
        return {
            "scale": self._scale,
            "growth_factor": self._growth_factor,
            "backoff_factor": self._backoff_factor,
            "growth_interval": self._growth_interval,
            "clean_steps": self._clean_steps,
        }

    def load_state_dict(self, state):
        """Go on as the scaler would whose state this is."""
        self._scale = state["scale"]
        self._growth_factor = state["growth_factor"]
        self._backoff_factor = state["backoff_factor"]
        self._growth_interval = state["growth_interval"]
        self._clean_steps = state["clean_steps"]

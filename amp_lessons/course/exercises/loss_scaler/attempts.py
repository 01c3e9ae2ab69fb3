"""Wrong and right loss scalers."""

from __future__ import annotations

import torch

from amp_lessons.course.exercises.attempt_table import Table

TABLE = Table("loss_scaler")
wrong = TABLE.mutant
right = TABLE.variant

UNSCALE = "                    parameter.grad /= self._scale\n"
CHECK = "self._overflow |= not parameter.grad.isfinite().all().item()"
RESET = "        self._unscaled = self._overflow = False\n"
COUNT = "            if self._clean_steps == self._growth_interval:\n"

wrong("scale_returns_loss", "scale", "scale(loss)", ("return loss * self._scale", "return loss"))
wrong(
    "scale_detaches",
    "scale",
    "cannot reach the parameters",
    ("return loss * self._scale", "return (loss * self._scale).detach()"),
)
SCALED = "return loss * self._scale"
wrong(
    "scales_in_place",
    "changes_loss",
    "from 1.3125 to 10.5",
    (SCALED, "loss *= self._scale\n        return loss"),
)
wrong("scales_by_mul_", "changes_loss", "from 1.3125 to 10.5", (SCALED, "return loss.mul_(self._scale)"))
wrong(
    "clears_the_loss",
    "changes_loss",
    "from 1.3125 to 0",
    (SCALED, "scaled = loss * self._scale\n        loss.data.zero_()\n        return scaled"),
)
wrong("unscale_does_nothing", "unscale", "after unscale_", (UNSCALE, ""))
wrong(
    "step_never_unscales",
    "wrong_step",
    "still scaled",
    ("        if not self._unscaled:\n            self.unscale_(optimizer)\n", ""),
)
wrong(
    "step_always_unscales",
    "wrong_step",
    "unscaled twice",
    (
        "        if not self._unscaled:\n            self.unscale_(optimizer)\n",
        "        self.unscale_(optimizer)\n",
    ),
)
wrong(
    "no_overflow_check",
    "steps_on_overflow",
    "inf",
    ("        if not self._overflow:\n            optimizer.step()\n", "        optimizer.step()\n"),
)
wrong(
    "nan_not_seen",
    "steps_on_overflow",
    "nan",
    (CHECK, "self._overflow |= parameter.grad.isinf().any().item()"),
)
wrong(
    "minus_inf_not_seen",
    "steps_on_overflow",
    "-inf",
    (CHECK, "self._overflow |= ((parameter.grad == float('inf')) | parameter.grad.isnan()).any().item()"),
)
wrong(
    "inf_not_seen",
    "steps_on_overflow",
    "inf",
    (CHECK, "self._overflow |= parameter.grad.isnan().any().item()"),
)
wrong("last_tensor_decides", "steps_on_overflow", "inf", (CHECK, CHECK.replace("|=", "=")))
wrong(
    "every_value_must_be_bad",
    "steps_on_overflow",
    "inf",
    (CHECK, "self._overflow |= not parameter.grad.isfinite().any().item()"),
)
wrong(
    "no_backoff", "update", "get_scale() went from", ("            self._scale *= self._backoff_factor\n", "")
)
wrong("halves_always", "update", "get_scale() went from", ("*= self._backoff_factor", "*= 0.5"))
wrong(
    "floor_of_one",
    "update",
    "get_scale() went from",
    (
        "            self._scale *= self._backoff_factor\n",
        "            self._scale = max(self._scale * self._backoff_factor, 32.0)\n",
    ),
)
wrong(
    "never_grows",
    "update",
    "get_scale() went from",
    ("                self._scale *= self._growth_factor\n", ""),
)
wrong("grows_one_late", "update", "get_scale() went from", (COUNT, COUNT.replace("==", ">")))
wrong(
    "grows_one_early",
    "update",
    "get_scale() went from",
    (COUNT, COUNT.replace("== self._growth_interval", "== self._growth_interval - 1")),
)
wrong("doubles_always", "update", "get_scale() went from", ("*= self._growth_factor", "*= 2.0"))
wrong(
    "counter_kept_over_overflow",
    "update",
    "get_scale() went from",
    ("            self._clean_steps = 0\n        else", "        else"),
)
wrong(
    "overflow_never_forgotten",
    "wrong_step",
    "no step was made",
    (RESET, "        self._unscaled = False\n"),
)
wrong(
    "unscaled_never_forgotten",
    "wrong_step",
    "still scaled",
    (RESET, "        self._overflow = False\n"),
)
wrong(
    "steps_twice",
    "wrong_step",
    "the weights moved by",
    ("            optimizer.step()\n", "            optimizer.step()\n            optimizer.step()\n"),
)
wrong(
    "never_steps", "wrong_step", "no step was made", ("            optimizer.step()\n", "            pass\n")
)
wrong(
    "ignores_init_scale",
    "init_scale",
    "65536 instead of 8",
    ("self._scale = init_scale", "self._scale = 65536.0"),
)
wrong(
    "get_scale_returns_none", "get_scale", "None", ("        return self._scale\n", "        self._scale\n")
)
wrong(
    "breaks_without_gradient",
    "raised",
    "NoneType",
    ("                if parameter.grad is not None:\n", "                if True:\n"),
)
wrong("a_method_missing", "method_missing", "update", ("def update(self)", "def updates(self)"))
wrong(
    "a_method_unwritten",
    "unfinished",
    "update",
    (
        "        if self._overflow:\n            self._scale *=",
        "        raise NotImplementedError\n        if self._overflow:\n            self._scale *=",
    ),
)
wrong(
    "other_constructor",
    "signature",
    "growth_interval",
    (" growth_interval=2000", " interval=2000"),
    ("= growth_interval\n", "= interval\n"),
)
TABLE.wrong["an_instance"] = ("not_a_class", "class", object())


wrong(
    "flags_of_the_class",
    "state_shared",
    "second LossScaler",
    (
        "        self._clean_steps = 0\n        self._unscaled = False\n        self._overflow = False\n",
        "        LossScaler._clean_steps = 0\n        LossScaler._unscaled = LossScaler._overflow = False\n",
    ),
    ("self._overflow |= not", "LossScaler._overflow |= not"),
    ("        self._unscaled = True", "        LossScaler._unscaled = True"),
    ("self._unscaled = self._overflow = False", "LossScaler._unscaled = LossScaler._overflow = False"),
)
wrong(
    "scale_in_a_global",
    "state_shared",
    "second LossScaler",
    ("class LossScaler:", "STATE = {}\n\n\nclass LossScaler:"),
    ("self._scale = init_scale", "STATE['scale'] = init_scale"),
    ("return loss * self._scale", "return loss * STATE['scale']"),
    ("/= self._scale", "/= STATE['scale']"),
    ("self._scale *= self._backoff_factor", "STATE['scale'] *= self._backoff_factor"),
    ("self._scale *= self._growth_factor", "STATE['scale'] *= self._growth_factor"),
    ("return self._scale", "return STATE['scale']"),
)


@TABLE.mistake("unscale", "gradients are")
class UnscaleMultiplies(TABLE.changed()):
    def unscale_(self, optimizer):
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    parameter.grad *= self._scale
        self._unscaled = True

    def step(self, optimizer):
        if not self._unscaled:
            super().unscale_(optimizer)
        optimizer.step()


@TABLE.mistake("unscale", "after unscale_")
class FirstGroupOnly(TABLE.changed()):
    def unscale_(self, optimizer):
        for parameter in optimizer.param_groups[0]["params"]:
            if parameter.grad is not None:
                parameter.grad /= self._scale
                self._overflow |= not parameter.grad.isfinite().all().item()
        self._unscaled = True


@TABLE.mistake("uses_grad_scaler", "torch.amp.GradScaler")
class Borrowed:
    def __init__(self, init_scale=2.0**16, growth_factor=2.0, backoff_factor=0.5, growth_interval=2000):
        self.inner = torch.amp.GradScaler("cpu", init_scale, growth_factor, backoff_factor, growth_interval)
        self.scale, self.unscale_, self.step = self.inner.scale, self.inner.unscale_, self.inner.step
        self.update, self.get_scale = self.inner.update, self.inner.get_scale

    def scale(self, loss): ...
    def unscale_(self, optimizer): ...
    def step(self, optimizer): ...
    def update(self): ...
    def get_scale(self): ...


class Gradients(TABLE.changed()):
    """What the attempts below share."""

    def gradients(self, optimizer):
        return [p.grad for g in optimizer.param_groups for p in g["params"] if p.grad is not None]

    def see_to_unscaling(self, optimizer):
        if not self._unscaled:
            self.unscale_(optimizer)


@TABLE.mistake("steps_on_overflow", "optimizer.step() was called 1 times")
class StepsOnZeros(Gradients):
    def step(self, optimizer):
        self.see_to_unscaling(optimizer)
        if self._overflow:
            torch._foreach_zero_(self.gradients(optimizer))
        optimizer.step()


@TABLE.mistake("steps_on_overflow", "the weights moved by")
class ReplacesWhatIsNotFinite(Gradients):
    def step(self, optimizer):
        self.see_to_unscaling(optimizer)
        for gradient in self.gradients(optimizer):
            gradient.nan_to_num_(0, 0, 0)
        optimizer.step()


@TABLE.mistake("overflow_clipped_away", "clipped after unscale_")
class LooksInStepOnly(Gradients):
    def unscale_(self, optimizer):
        torch._foreach_div_(self.gradients(optimizer), self._scale)
        self._unscaled = True

    def step(self, optimizer):
        self.see_to_unscaling(optimizer)
        self._overflow = not all(g.isfinite().all() for g in self.gradients(optimizer))
        if not self._overflow:
            optimizer.step()


@TABLE.mistake("steps_by_hand", "optimizer.step() was called 0 times")
class StepsByHand(Gradients):
    def step(self, optimizer):
        self.see_to_unscaling(optimizer)
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None and not self._overflow:
                    parameter.data -= group["lr"] * parameter.grad


@TABLE.mistake("update", "instead of 2.68435e+08")
class GrowsTo16Million(Gradients):
    def update(self):
        super().update()
        self._scale = min(self._scale, 2.0**24)


@TABLE.mistake("update", "from 4096 to 32768")
class GrowsTo32Thousand(Gradients):
    def update(self):
        super().update()
        self._scale = min(self._scale, 2.0**15)


@TABLE.correct()
class RaisesIfUnscaledAgain(Gradients):
    def unscale_(self, optimizer):
        if self._unscaled:
            raise RuntimeError("unscale_() has already been called")
        super().unscale_(optimizer)


@TABLE.correct()
class UnscalesOnce(Gradients):
    def unscale_(self, optimizer):
        if not self._unscaled:
            super().unscale_(optimizer)


@TABLE.correct()
class StepsWithoutGradients(Gradients):
    """Takes the gradients away: no optimizer moves a weight that has none."""

    def step(self, optimizer):
        self.see_to_unscaling(optimizer)
        if self._overflow:
            optimizer.zero_grad(set_to_none=True)
        optimizer.step()


LOWER = "            self._scale *= self._backoff_factor\n"
wrong(
    "interval_hard_coded",
    "update",
    "8 to 8 instead of 32",
    ("== self._growth_interval", "== 2000"),
)
wrong(
    "backoff_hard_coded",
    "update",
    "32 to 16 instead of 8",
    (LOWER, LOWER.replace("self._backoff_factor", "0.5")),
)

right("the_solution")
right(
    "clears_what_overflowed",
    (
        "            optimizer.step()\n",
        "            optimizer.step()\n        else:\n            optimizer.zero_grad()\n",
    ),
)
right(
    "lowered_in_step",
    ("            optimizer.step()\n", "            optimizer.step()\n        else:\n" + LOWER),
    (
        LOWER + "            self._clean_steps = 0\n        else",
        "            self._clean_steps = 0\n        else",
    ),
)
right("in_place_on_a_copy", (SCALED, "return loss.clone().mul_(self._scale)"))
right("scales_by_name", (SCALED, "scaled = loss.mul(other=self._scale)\n        return scaled"))
right(
    "scale_as_a_tensor",
    ("self._scale = init_scale", "self._scale = torch.tensor(init_scale)"),
    ("class LossScaler:", "import torch\nclass LossScaler:"),
    ("        return self._scale\n", "        return self._scale.item()\n"),
)


@TABLE.correct("finite_taken_for_inf")
class StateOfTheIteration:
    """Finds the overflow while the gradients are still scaled, and keeps the state in one place."""

    def __init__(self, init_scale=2.0**16, growth_factor=2.0, backoff_factor=0.5, growth_interval=2000):
        self.value, self.up, self.down, self.every = (
            init_scale,
            growth_factor,
            backoff_factor,
            growth_interval,
        )
        self.clean = 0
        self.iteration = {}

    def _gradients(self, optimizer):
        return [p.grad for g in optimizer.param_groups for p in g["params"] if p.grad is not None]

    def scale(self, loss):
        return self.value * loss

    def unscale_(self, optimizer):
        gradients = self._gradients(optimizer)
        self.iteration["bad"] = not all(bool(g.sum().isfinite()) for g in gradients)
        torch._foreach_div_(gradients, self.value)

    def step(self, optimizer):
        if "bad" not in self.iteration:
            self.unscale_(optimizer)
        return None if self.iteration["bad"] else optimizer.step()

    def update(self):
        bad = self.iteration.pop("bad")
        self.clean = 0 if bad else self.clean + 1
        if bad:
            self.value = self.value * self.down
        elif self.clean % self.every == 0:
            self.value = self.value * self.up

    def get_scale(self):
        return float(self.value)


@TABLE.correct()
class NewGradients(TABLE.changed()):
    """Replaces the gradients instead of changing them in place."""

    def unscale_(self, optimizer):
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    parameter.grad = parameter.grad * (1.0 / self._scale)
                    self._overflow = self._overflow or not bool(torch.isfinite(parameter.grad).all())
        self._unscaled = True


wrong(
    "scale_returns_a_float",
    "scale",
    "float",
    ("return loss * self._scale", "return loss.item() * self._scale"),
)
wrong("scale_returns_nothing", "scale", "None", ("return loss * self._scale", "loss * self._scale"))
wrong("unscale_multiplies", "unscale", "after unscale_", (UNSCALE, UNSCALE.replace("/=", "*=")))
wrong(
    "one_parameter_group",
    "unscale",
    "after unscale_",
    ("in optimizer.param_groups:", "in optimizer.param_groups[:1]:"),
)
wrong(
    "count_goes_on_after_growth",
    "update",
    "get_scale() went from",
    ("                self._clean_steps = 0\n", ""),
)
wrong(
    "never_below_one",
    "update",
    "2 to 1 instead of 0.5",
    ("self._scale *= self._backoff_factor", "self._scale = max(1.0, self._scale * self._backoff_factor)"),
)


wrong(
    "scale_named_like_its_method",
    "method_missing",
    "scaler.scale is no method",
    ("        self._scale = init_scale\n", "        self.scale = self._scale = init_scale\n"),
)
wrong(
    "flag_named_like_its_method",
    "method_missing",
    "scaler.unscale_ is no method",
    ("        self._unscaled = True\n", "        self._unscaled = self.unscale_ = True\n"),
)


@TABLE.mistake("wrong_step", "with gradients clipped after unscale_")
class AppliesCopies(Gradients):
    def unscale_(self, optimizer):
        super().unscale_(optimizer)
        self.copies = [gradient.clone() for gradient in self.gradients(optimizer)]

    def step(self, optimizer):
        self.see_to_unscaling(optimizer)
        for gradient, copy in zip(self.gradients(optimizer), self.copies, strict=True):
            gradient.copy_(copy)
        super().step(optimizer)


@TABLE.correct()
class MethodsOfTheInstance:
    def __init__(self, init_scale=2.0**16, growth_factor=2.0, backoff_factor=0.5, growth_interval=2000):
        scaler = TABLE.changed()(init_scale, growth_factor, backoff_factor, growth_interval)
        self.scale, self.get_scale = scaler.scale, lambda: scaler.get_scale()
        self.unscale_, self.step, self.update = scaler.unscale_, scaler.step, scaler.update


right(
    "get_scale_returns_a_tensor",
    ("        return self._scale\n", "        import torch\n        return torch.tensor(self._scale)\n"),
    notes=("returned_a_tensor",),
)

STEP = "            optimizer.step()\n"
wrong(
    "step_clears_gradients",
    "step_clears_gradients",
    "leaves them",
    (STEP, STEP + "            optimizer.zero_grad()\n"),
)
wrong(
    "unscale_clears_gradients",
    "unscale",
    "[0, 0, 0]",
    ("        self._unscaled = True\n", "        self._unscaled = True\n        optimizer.zero_grad()\n"),
)

# --- written without a look at the check
wrong(
    "counts_in_a_default_argument",
    "state_shared",
    "a second LossScaler",
    ("growth_interval=2000):\n", 'growth_interval=2000, counts={"clean": 0}):\n'),
    (
        "        self._clean_steps = 0\n        self._unscaled = False",
        "        self._counts = counts\n        self._unscaled = False",
    ),
    (
        "            self._clean_steps = 0\n        else:",
        '            self._counts["clean"] = 0\n        else:',
    ),
    ("            self._clean_steps += 1\n", '            self._counts["clean"] += 1\n'),
    (COUNT, COUNT.replace("self._clean_steps", 'self._counts["clean"]')),
    ("factor\n                self._clean_steps = 0", 'factor\n                self._counts["clean"] = 0'),
)
wrong(
    "counts_from_one_after_growth",
    "update",
    "get_scale() went from",
    ("factor\n                self._clean_steps = 0", "factor\n                self._clean_steps = 1"),
)
wrong(
    "get_scale_returns_its_own_tensor",
    "get_scale",
    "is 32 after update",
    ("self._scale = init_scale", "import torch\n\n        self._scale = torch.tensor(init_scale)"),
)
for name, number in {"sum": "sum()", "norm": "norm()"}.items():
    right(
        f"looks_for_inf_in_the_{name}",
        ("parameter.grad.isfinite().all()", f"parameter.grad.{number}.isfinite()"),
        notes=("finite_taken_for_inf",),
    )

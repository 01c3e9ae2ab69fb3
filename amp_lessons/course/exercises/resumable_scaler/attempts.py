"""Wrong and right scalers with a state."""

from __future__ import annotations

from amp_lessons.course.exercises.attempt_table import Table

TABLE = Table("resumable_scaler")
wrong = TABLE.mutant
right = TABLE.variant

SAVED_SCALE = '            "scale": self._scale,\n'
LOADED_SCALE = '        self._scale = state["scale"]\n'
LOADED_COUNT = '        self._clean_steps = state["clean_steps"]\n'
RETURN = "        return {\n"

wrong(
    "no_overflow_check",
    "steps_on_overflow",
    "inf",
    ("        if not self._overflow:\n            optimizer.step()\n", "        optimizer.step()\n"),
)
wrong("scale_forgotten", "scale_not_resumed", "when it was saved", (LOADED_SCALE, ""))
wrong(
    "init_scale_saved",
    "scale_not_resumed",
    "it was",
    ("        self._scale = init_scale\n", "        self._scale = self._first = init_scale\n"),
    (SAVED_SCALE, '            "scale": self._first,\n'),
)
wrong("count_forgotten", "not_resumed", "the same arguments", (LOADED_COUNT, ""))
wrong(
    "count_begun_anew", "not_resumed", "the same arguments", (LOADED_COUNT, "        self._clean_steps = 0\n")
)
wrong(
    "growth_factor_kept",
    "not_resumed",
    "other arguments",
    ('        self._growth_factor = state["growth_factor"]\n', ""),
)
wrong(
    "backoff_factor_kept",
    "not_resumed",
    "other arguments",
    ('        self._backoff_factor = state["backoff_factor"]\n', ""),
)
wrong(
    "interval_kept",
    "not_resumed",
    "other arguments",
    ('        self._growth_interval = state["growth_interval"]\n', ""),
)
wrong(
    "the_scaler_itself",
    "state_goes_on",
    "changed in the state",
    (RETURN, "        return self.__dict__\n        return {\n"),
)
wrong(
    "pickled",
    "state_not_plain",
    "does not come back",
    (RETURN, '        return {"scaler": self}\n        return {\n'),
)
wrong("nothing_saved", "state_not_plain", "None", (RETURN, "        return None\n        return {\n"))
wrong(
    "state_dict_unwritten",
    "unfinished",
    "state_dict",
    (RETURN, "        raise NotImplementedError\n        return {\n"),
)
wrong(
    "loading_unwritten",
    "unfinished",
    "load_state_dict",
    (LOADED_SCALE, "        raise NotImplementedError\n"),
)
wrong("another_name", "raised", "KeyError", (SAVED_SCALE, '            "factor": self._scale,\n'))

right("the_solution")
right(
    "the_dict_copied",
    (
        RETURN,
        "        state = dict(self.__dict__, scale=self._scale, growth_factor=self._growth_factor, backoff_factor=self._backoff_factor, growth_interval=self._growth_interval, clean_steps=self._clean_steps)\n        return state\n        return {\n",
    ),
)
right("scale_as_a_float", (SAVED_SCALE, '            "scale": float(self._scale),\n'))
right(
    "flags_forgotten_on_loading",
    (LOADED_SCALE, LOADED_SCALE + "        self._unscaled = self._overflow = False\n"),
)

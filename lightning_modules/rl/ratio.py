"""How many gradient updates are due after new environment steps."""

import math
from fractions import Fraction


class Ratio:
    r"""Turn environment steps into gradient updates at a fixed rate, without drift.

    .. math::
        \text{updates} = \lfloor \text{utd} \cdot \text{steps} \rfloor

    at every moment, however the steps are cut into ticks: the part of an update that is not due yet is kept as an exact fraction,
    so that a rate of 1/3 gives one update every third step for ever. Only this fraction is remembered, never a number of steps, so
    a run that is resumed at any step cannot owe a burst of updates.

    Args:
        utd: updates per environment step of this process, at least 1e-9; the nearest fraction with a denominator up to 1e9 is used.

    Raises:
        ValueError: if ``utd`` is not such a number.

    Source: the replay-ratio controllers of Dreamer and SheepRL.
    """

    def __init__(self, utd: float) -> None:
        if not (math.isfinite(utd) and utd >= 1e-9):
            raise ValueError(f"utd, the updates per environment step, must be a number above 1e-9, got {utd}")
        self.utd = Fraction(utd).limit_denominator(10**9)
        self._owed = Fraction(0)

    def __call__(self, new_steps: int) -> int:
        """Return the updates due after ``new_steps`` more environment steps."""
        if new_steps < 0:
            raise ValueError(f"new_steps counts the environment steps since the last call, got {new_steps}")
        self._owed += self.utd * new_steps
        due = math.floor(self._owed)
        self._owed -= due
        return due

    def state_dict(self) -> dict[str, int]:
        return {"owed_numerator": self._owed.numerator, "owed_denominator": self._owed.denominator}

    def load_state_dict(self, state_dict: dict[str, int]) -> None:
        self._owed = Fraction(state_dict["owed_numerator"], state_dict["owed_denominator"])

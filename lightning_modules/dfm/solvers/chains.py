"""What the samples of one run of a solver carry with them: the model, their conditions and random numbers, the count of calls.

Legend: B samples, D tokens, V ids.
"""

import copy
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from lightning_modules.dfm.posterior import probability_faults, raise_faults
from lightning_modules.generative import counted_random

ROLES = 8
EVENTS = 2**24


class CallCount:
    """How often the model was called, and for how many samples in all."""

    def __init__(self) -> None:
        self.calls = 0
        self.rows = 0


class Chains:
    """A batch of samples, or some of its rows.

    Args:
        model: ``model(x=, t=, **extras)`` returns probabilities ``[B, D, V]``.
        mask_id: id of the mask, None for the uniform source.
        batch_size: B.
        num_steps: N.
        extras: what the model is given besides; a tensor whose first axis has B entries goes with its rows.
        generator: where random numbers come from; None takes the global generator.
        seeds: seed of each sample, int64 ``[B]``, in place of a generator.
        dtype: dtype of the probabilities that tokens are drawn from.
        device: device of the samples.
    """

    def __init__(
        self,
        model: Callable[..., Tensor],
        mask_id: int | None,
        batch_size: int,
        num_steps: int,
        extras: dict[str, Any],
        generator: torch.Generator | None,
        seeds: Tensor | None,
        dtype: torch.dtype,
        device: torch.device,
    ) -> None:
        self.model, self.mask_id, self.batch_size, self.extras = model, mask_id, batch_size, extras
        self.generator, self.seeds, self.dtype, self.device = generator, seeds, dtype, device
        self.time_dtype = time_dtype(model)
        self.checks_every_call = device.type == "cpu"
        self.count = CallCount()
        self.step, self.num_steps = 0, num_steps
        self._faults: list[tuple[int, Tensor]] = []

    def select(self, rows: Tensor) -> "Chains":
        """Return the samples of some rows; calls count for the whole."""
        chosen = copy.copy(self)
        chosen.extras = {name: value[rows] if self._belongs_to_rows(value) else value for name, value in self.extras.items()}
        chosen.seeds = None if self.seeds is None else self.seeds[rows]
        chosen.batch_size = len(rows)
        return chosen

    def posterior(self, x_BD: Tensor, t: float | Tensor) -> Tensor:
        """Call the model once.

        Args:
            x_BD: states of these samples.
            t: their common time, or the time of each, ``[B]``.

        Raises:
            ValueError: if the answer is no posterior. On an accelerator only the first call waits for the answer, the others are
                checked by :meth:`check` at the end.
        """
        t_B = torch.as_tensor(t, dtype=self.time_dtype, device=self.device).expand(len(x_BD))
        p_BDV = self.model(x=x_BD, t=t_B, **self.extras)
        faults = probability_faults(p_BDV, x_BD, self.mask_id)
        if self.checks_every_call or self.count.calls == 0:
            raise_faults(faults, self.step)
        else:
            self._faults.append((self.step, faults))
        self.count.calls += 1
        self.count.rows += len(x_BD)
        return p_BDV.to(self.dtype)

    def check(self) -> None:
        """Raise what the model did wrong on the way."""
        if self._faults:
            for (step, _), faults in zip(self._faults, torch.stack([faults for _, faults in self._faults]).cpu(), strict=True):
                raise_faults(faults, step)

    def uniform(self, role: int, shape: Sequence[int], event: int = 0) -> Tensor:
        """Return numbers from 0 to 1, float64 ``[B, *shape]``.

        Args:
            role: what they are for, below 8; seeds give the same numbers for the same role, event and step.
            shape: shape for each sample.
            event: number of the event within the step.
        """
        if self.seeds is None:
            size = (self.batch_size, *shape)
            return torch.rand(size, dtype=torch.float64, generator=self.generator, device=self.device)
        return counted_random.uniform(self.seeds, 1 + role + ROLES * (event + EVENTS * self.step), shape)

    def exponential(self, role: int, shape: Sequence[int], event: int = 0) -> Tensor:
        """Return standard exponential numbers; see :meth:`uniform`."""
        return -torch.log(self.uniform(role, shape, event))

    def _belongs_to_rows(self, value: Any) -> bool:
        return isinstance(value, Tensor) and value.ndim > 0 and len(value) == self.batch_size


def time_dtype(model: Callable[..., Tensor]) -> torch.dtype:
    """Return the dtype of times a model is asked with: float64 for one in float64, else float32."""
    held = _first_tensor(model)
    return torch.float64 if held is not None and held.dtype == torch.float64 else torch.float32


def device_of(model: Callable[..., Tensor]) -> torch.device:
    """Return where a model is; the CPU for one that holds no tensors."""
    held = _first_tensor(model)
    return torch.device("cpu") if held is None else held.device


def _first_tensor(model: Callable[..., Tensor]) -> Tensor | None:
    if not isinstance(model, nn.Module):
        return None
    return next((tensor for tensor in (*model.parameters(), *model.buffers()) if tensor.is_floating_point()), None)

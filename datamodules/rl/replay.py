"""Ring of transitions of several environments, sampled uniformly or by priority."""

import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from datamodules.rl.n_step import n_step_returns
from datamodules.rl.sum_tree import CumulativeSum, SumTree

CUMULATIVE_SUM_LIMIT = 100_000  # transitions; a sum tree is faster above


class ReplayBuffer:
    """The newest ``capacity`` transitions, in memory that is reserved once.

    Fields of a transition: ``obs``, ``action``, ``reward``, ``next_obs`` (the final observation where the episode ended),
    ``terminated`` and ``truncated``. Rows are written step by step and, within a step, environment by environment; thereby the
    environment of a row and its successor are known without being stored. The capacity need not be a multiple of ``n_envs``.

    Random numbers come from a generator of its own: nothing that happens elsewhere changes what is sampled.

    Args:
        capacity: largest number of transitions.
        observation_shape: shape of one observation.
        action_size: number of action coordinates.
        n_envs: number of environments that are stepped together.
        observation_dtype: float32, or uint8 for images, which stay uint8 when sampled.
        prioritised: sample in proportion to the priorities given to :meth:`update_priorities` instead of uniformly.
        seed: seed of the sampling.
        folder: keep the transitions in unnamed files in this folder instead of in memory; they vanish with the process.

    Attributes:
        fields: the storage by name, each ``[capacity, ...]``.
        written: transitions added so far, also those that are overwritten.
        max_priority: largest priority so far, which a new transition gets (1 before any was given).

    Raises:
        ValueError: see the methods.

    Source: Mnih et al. 2015 (uniform); Schaul et al. 2016 (priorities); Fujimoto et al. 2020 (LAP).
    """

    def __init__(
        self,
        capacity: int,
        observation_shape: Sequence[int],
        action_size: int,
        n_envs: int = 1,
        observation_dtype: torch.dtype = torch.float32,
        prioritised: bool = False,
        seed: int = 0,
        folder: str | Path | None = None,
    ) -> None:
        if not 1 <= n_envs <= capacity:
            raise ValueError(f"a replay of capacity {capacity} cannot hold one step of {n_envs} environments: raise its capacity")
        self.capacity = capacity
        self.n_envs = n_envs
        layout: dict[str, tuple[tuple[int, ...], torch.dtype]] = {
            "obs": (tuple(observation_shape), observation_dtype),
            "action": ((action_size,), torch.float32),
            "reward": ((), torch.float32),
            "next_obs": (tuple(observation_shape), observation_dtype),
            "terminated": ((), torch.bool),
            "truncated": ((), torch.bool),
        }
        self.fields = {name: _reserve((capacity, *shape), dtype, folder) for name, (shape, dtype) in layout.items()}
        self.written = 0
        self.max_priority = 1.0
        self._priorities: CumulativeSum | None = None
        if prioritised:
            self._priorities = CumulativeSum(capacity) if capacity <= CUMULATIVE_SUM_LIMIT else SumTree(capacity)
        self._generator = torch.Generator().manual_seed(seed)

    @property
    def size(self) -> int:
        """Transitions held now."""
        return min(self.written, self.capacity)

    def __len__(self) -> int:
        return self.size

    def add(self, batch: Mapping[str, Tensor | np.ndarray]) -> None:
        """Write one vector step, or several, over the oldest transitions.

        Args:
            batch: each field, shape ``[steps * n_envs, ...]``, step by step and within a step environment by environment.

        Raises:
            ValueError: if a field is missing, unknown, of another shape or a type that would lose information, or if the rows are
                no whole vector steps or more than the capacity.
            FloatingPointError: if a value is NaN or infinite; nothing is written then.
        """
        if batch.keys() != self.fields.keys():
            raise ValueError(f"the replay stores the fields {', '.join(self.fields)}; it was given {', '.join(batch)}")
        values = {name: torch.as_tensor(value) for name, value in batch.items()}
        rows = len(values["reward"])
        if rows % self.n_envs or rows > self.capacity:
            raise ValueError(f"a replay of {self.n_envs} environments and capacity {self.capacity} cannot add {rows} rows at once")
        for name, value in values.items():
            field = self.fields[name]
            if value.shape != (rows, *field.shape[1:]) or not torch.can_cast(value.dtype, field.dtype):
                given = f"{value.dtype} {list(value.shape)}"
                raise ValueError(f"the replay stores {name} as {_describe(field)}, but {rows} rows of it came as {given}")
            if value.is_floating_point() and not (finite := value.isfinite()).all():
                step, env = divmod(self.written + int(finite.reshape(rows, -1).all(1).long().argmin()), self.n_envs)
                culprit = "the policy" if name == "action" else "its simulation"
                raise FloatingPointError(f"{name} of environment {env} is not finite at its step {step}: {culprit} has diverged")
        row_B = torch.arange(self.written, self.written + rows) % self.capacity
        for name, field in self.fields.items():
            field.index_copy_(0, row_B, values[name].to(field.dtype))
        if self._priorities is not None:
            self._priorities.set(row_B, torch.full((rows,), self.max_priority, dtype=torch.float64))
        self.written += rows

    def sample(
        self, batch_size: int, device: torch.device | str = "cpu", n_step: int = 1, gamma: float | None = None
    ) -> dict[str, Tensor]:
        r"""Draw transitions with replacement.

        Args:
            batch_size: number of transitions B.
            device: where to put them; on the way to a GPU they go through pinned memory without waiting.
            n_step: sum up to so many rewards, discounted by ``gamma`` (:func:`~datamodules.rl.n_step.n_step_returns`);
                ``next_obs``, ``terminated`` and ``truncated`` are then those of the last transition used.
            gamma: discount, needed if ``n_step`` is above 1.

        Returns:
            The fields, each ``[B, ...]``, and ``env_id`` int64 ``[B]``; ``index`` int64 ``[B]`` on the CPU, for
            :meth:`update_priorities`; with ``gamma`` also ``discount`` float32 ``[B]``, so that the target is always
            ``reward + discount * ~terminated * V(next_obs)``; if prioritised also ``probability`` float32 ``[B]`` of each draw.

        Raises:
            ValueError: if nothing was added yet, if ``batch_size`` exceeds the capacity, or if ``gamma`` is missing.
        """
        if batch_size > self.capacity:
            raise ValueError(f"batch_size {batch_size} exceeds the replay's capacity {self.capacity}: raise its capacity")
        if not self.written:
            raise ValueError("the replay is empty: add transitions before sampling")
        if n_step < 1 or (n_step > 1 and gamma is None):
            raise ValueError(f"n-step returns need n_step >= 1 and a discount gamma, got n_step={n_step}, gamma={gamma}")
        extra: dict[str, Tensor] = {}
        if self._priorities is None:
            index_B = torch.randint(self.size, (batch_size,), generator=self._generator)
        else:
            uniform_B = torch.rand(batch_size, generator=self._generator, dtype=torch.float64)
            index_B, probability_B = self._priorities.draw(uniform_B)
            extra["probability"] = probability_B.float()
        newest = self.written - 1
        later_B = (newest - index_B) % self.capacity  # transitions written since this one
        extra["env_id"] = (newest - later_B) % self.n_envs
        rows = dict.fromkeys(self.fields, index_B)
        if gamma is not None and n_step == 1:
            extra["discount"] = torch.full((batch_size,), gamma)
        elif gamma is not None:
            steps_left_B = later_B // self.n_envs
            extra["reward"], last_B, extra["discount"] = n_step_returns(
                self.fields, index_B, steps_left_B, n_step, gamma, self.n_envs
            )
            rows |= dict.fromkeys(("next_obs", "terminated", "truncated"), last_B)
        batch = {name: self.fields[name].index_select(0, row_B) for name, row_B in rows.items()} | extra
        return {name: _move(value, torch.device(device)) for name, value in batch.items()} | {"index": index_B}

    def newest(self, count: int) -> Tensor:
        """Return the rows of the newest transitions, oldest first, int64 ``[count]``, or fewer if there are no more."""
        return torch.arange(self.written - min(count, self.size), self.written) % self.capacity

    def update_priorities(self, index_B: Tensor, priority_B: Tensor) -> None:
        """Give sampled transitions their new priorities; of several for one transition the largest holds.

        Args:
            index_B: ``index`` of a sample.
            priority_B: positive priorities, with any exponent already applied.

        Raises:
            ValueError: if the replay is uniform, or an index holds no transition.
            FloatingPointError: if a priority is not a positive finite number.
        """
        if self._priorities is None:
            raise ValueError("this replay samples uniformly: build it with prioritised=True to give priorities")
        index_B, priority_B = index_B.cpu(), priority_B.detach().to("cpu", torch.float64)
        low, high = priority_B.aminmax()
        if not (low > 0 and high.isfinite()):
            raise FloatingPointError(f"priorities must be positive and finite, got {low.item():.3g} to {high.item():.3g}")
        if index_B.min() < 0 or index_B.max() >= self.size:
            raise ValueError(f"the replay holds transitions 0 to {self.size - 1}: take the index of a sample")
        self._priorities.set(index_B, priority_B)
        self.max_priority = max(self.max_priority, high.item())

    def reset_max_priority(self) -> None:
        """Set ``max_priority`` to the largest priority that is stored now."""
        if self._priorities is not None and self.written:
            self.max_priority = self._priorities.priorities.max().item()

    def state_dict(self) -> dict[str, Any]:
        """Return a copy of everything, cut to the transitions held."""
        state: dict[str, Any] = {
            "capacity": self.capacity,
            "n_envs": self.n_envs,
            "written": self.written,
            "fields": {name: field[: self.size].clone() for name, field in self.fields.items()},
            "generator": self._generator.get_state(),
        }
        if self._priorities is not None:
            state |= {"priorities": self._priorities.priorities[: self.size].clone(), "max_priority": self.max_priority}
        return state

    def state_dict_at_boundary(self) -> dict[str, Any]:
        """Return the state as if the newest transition of every environment had been truncated; this replay stays as it is."""
        state = self.state_dict()
        ends = self.newest(self.n_envs)
        state["fields"]["truncated"][ends] |= ~state["fields"]["terminated"][ends]
        return state

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Continue as the saved replay would have: the next samples are the same.

        Raises:
            ValueError: if the saved replay is of another kind; nothing is changed then.
        """
        saved, own = _kind(state_dict), _kind(self.state_dict())
        if different := [
            f"{key} {saved.get(key)} instead of {own.get(key)}" for key in own | saved if saved.get(key) != own.get(key)
        ]:
            raise ValueError(f"the saved replay has {', '.join(different)}: resume with the settings that it was saved with")
        self.written = state_dict["written"]
        for name, field in self.fields.items():
            field[: self.size] = state_dict["fields"][name]
        if self._priorities is not None:
            priorities = torch.zeros(self.capacity, dtype=torch.float64)
            priorities[: self.size] = state_dict["priorities"]
            self._priorities.set(torch.arange(self.capacity), priorities)
            self.max_priority = state_dict["max_priority"]
        self._generator.set_state(state_dict["generator"])


def _reserve(shape: tuple[int, ...], dtype: torch.dtype, folder: str | Path | None) -> Tensor:
    """Return uninitialised storage, whose memory is only taken as it is written."""
    if folder is None:
        return torch.empty(shape, dtype=dtype)
    with tempfile.TemporaryFile(dir=folder) as file:
        numpy_dtype = torch.empty(0, dtype=dtype).numpy().dtype
        return torch.from_numpy(np.memmap(file, dtype=numpy_dtype, mode="w+", shape=shape))


def _move(value: Tensor, device: torch.device) -> Tensor:
    if device.type == "cuda":
        return value.pin_memory().to(device, non_blocking=True)
    return value.to(device)


def _describe(field: Tensor) -> str:
    return f"{str(field.dtype).removeprefix('torch.')} {list(field.shape[1:])}"


def _kind(state_dict: dict[str, Any]) -> dict[str, str]:
    """Return what two replays must share for one to continue the other."""
    kind = {name: _describe(field) for name, field in state_dict["fields"].items()}
    sampling = "by priority" if "priorities" in state_dict else "uniform"
    return {"capacity": str(state_dict["capacity"]), "n_envs": str(state_dict["n_envs"]), "sampling": sampling, **kind}

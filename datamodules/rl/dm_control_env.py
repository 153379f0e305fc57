"""Tasks of the DeepMind control suite as Gymnasium environments."""

import difflib
import importlib.metadata
import os
from typing import Any

import gymnasium as gym
import numpy as np

EDITED = ("actuator_", "body_", "dof_", "eq_", "geom_", "hfield_", "jnt_", "mat_", "site_", "tendon_", "wrap_")
UNBOUNDED = 1e10  # mjMAXVAL, what the suite gives as the bounds of an actuator without limits
NO_OPENGL = ("disable", "disabled", "off", "false", "0")


class DmControlEnv(gym.Env[np.ndarray, np.ndarray]):
    """One task of ``dm_control.suite``.

    An observation is the task's dictionary, raveled and concatenated in the order of its specification, float64 ``[obs]``.
    Actions are float32 ``[m]`` in the task's own bounds. The last step of an episode is terminated if its discount is 0 and
    truncated otherwise. ``reset(seed)`` gives the same episode whatever happened before: it also undoes the changes that tasks
    make to the model (targets, gains, terrain). What a task draws while it is built (the springs of ``lqr``) does not depend on
    the seed.

    Args:
        task: domain and task with a dash between them: ``finger-spin``, ``ball_in_cup-catch``.
        endless: without the suite's own time limit.
        render_mode: ``rgb_array`` or None.

    Raises:
        ImportError: if dm_control is missing, or the installed mujoco is too new for it.
        ValueError: if there is no such task, or images are asked for where ``MUJOCO_GL`` disables them.
    """

    metadata = {"render_modes": ["rgb_array"]}

    def __init__(self, task: str, endless: bool = False, render_mode: str | None = None) -> None:
        if render_mode and os.environ.get("MUJOCO_GL", "").lower() in NO_OPENGL:
            raise ValueError(
                f"render_mode={render_mode!r} needs OpenGL, but MUJOCO_GL={os.environ['MUJOCO_GL']}: "
                "set MUJOCO_GL=egl before the start"
            )
        suite = _suite()
        domain, _, name = task.partition("-")
        if (domain, name) not in suite.ALL_TASKS:
            close = difflib.get_close_matches(task, ["-".join(pair) for pair in suite.ALL_TASKS], n=3)
            raise ValueError(f"dmc:{task} is unknown; {_suggestion(close)}")
        options: dict[str, Any] = {"random": 0, **({"time_limit": float("inf")} if endless else {})}
        self.task_name = task
        self.dm_env = suite.load(domain, name, task_kwargs=options)
        self.render_mode = render_mode
        self._built_model = {field: array.copy() for field, array in self._model_arrays().items()}
        size = sum(int(np.prod(part.shape)) for part in self.dm_env.observation_spec().values())
        action = self.dm_env.action_spec()
        low, high = (
            np.where(np.abs(bound) < UNBOUNDED, bound, np.copysign(np.inf, bound)) for bound in (action.minimum, action.maximum)
        )
        self.observation_space = gym.spaces.Box(-np.inf, np.inf, (size,), np.float64)
        self.action_space = gym.spaces.Box(low.astype(np.float32), high.astype(np.float32), action.shape, np.float32)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[np.ndarray, dict[str, Any]]:
        """Begin an episode; a seed restarts the task's random numbers and gives the model back as it was built.

        Raises:
            RuntimeError: if the task draws its scene at every reset (``quadruped-escape``) and there is no OpenGL.
        """
        super().reset(seed=seed)
        if seed is not None:
            self.dm_env.task._random = np.random.RandomState(seed)
            self.change_model({})
        try:
            return self._flat(self.dm_env.reset()), {}
        except RuntimeError as error:
            if "OpenGL" not in str(error):
                raise
            raise RuntimeError(
                f"dmc:{self.task_name} draws at every reset: set MUJOCO_GL=egl or osmesa before the start"
            ) from error

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        """Apply one action for one control step."""
        step = self.dm_env.step(action)
        terminated = step.last() and step.discount == 0
        return self._flat(step), float(step.reward), terminated, step.last() and not terminated, {}

    def render(self) -> np.ndarray:
        """Draw what the first camera sees, uint8 ``[240, 320, 3]``."""
        return self.dm_env.physics.render(camera_id=0)

    def close(self) -> None:
        """Free the physics."""
        self.dm_env.close()

    def model_changes(self) -> dict[str, np.ndarray]:
        """Return the fields of the model (no meshes, no textures) that differ from how it was built."""
        return {
            field: array for field, array in self._model_arrays().items() if not np.array_equal(array, self._built_model[field])
        }

    def change_model(self, changes: dict[str, np.ndarray]) -> None:
        """Give the model back as it was built, except for these fields."""
        for field, array in self._model_arrays().items():
            array[...] = changes.get(field, self._built_model[field])

    def _model_arrays(self) -> dict[str, np.ndarray]:
        model = self.dm_env.physics.model.ptr
        fields = ((field, getattr(model, field)) for field in dir(model) if field.startswith(EDITED))
        return {field: array for field, array in fields if isinstance(array, np.ndarray)}

    def _flat(self, step: Any) -> np.ndarray:
        return np.concatenate([np.ravel(part) for part in step.observation.values()], dtype=np.float64)


def _suite() -> Any:
    """Import the suite.

    dm_control 1.0.50 with mujoco 4.0.0 fails only when a task is loaded, with an AttributeError about ``flex_vertedge``.
    """
    try:
        version = importlib.metadata.version("mujoco")
        if int(version.partition(".")[0]) >= 4:
            raise ImportError(f"dmc: environments need mujoco below 4, found {version}: pip install 'mujoco<4'")
        from dm_control import suite
    except ModuleNotFoundError as error:
        raise ImportError(f"dmc: environments need {error.name or 'mujoco'}: pip install 'leyden[rl]'") from error
    return suite


def _suggestion(close: list[str]) -> str:
    return f"did you mean {', '.join(f'dmc:{task}' for task in close)}?" if close else "tasks are named like dmc:finger-spin"

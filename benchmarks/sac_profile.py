"""Print where the time of training SAC or ProtoSAC goes: ``python -m benchmarks.sac_profile --env Hopper-v5 --hidden 256``."""

import argparse
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any

from lightning import Callback, LightningModule, Trainer

from benchmarks.report import table
from benchmarks.sac_agents import Setting, our_agent
from lightning_modules.protosac.module import ProtoSACModule
from lightning_modules.rl import sac_module
from lightning_modules.rl.sac_module import SACModule

MODULES: dict[str, type[SACModule]] = {"sac": SACModule, "protosac": ProtoSACModule}
NETWORKS = ("critics", "policy")


class Clock:
    """Seconds by label; what a timed function calls and is timed itself does not count twice."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = defaultdict(float)
        self._running: list[str] = []
        self._within: list[float] = []

    @property
    def network(self) -> str:
        """The network that the running part belongs to."""
        return self._running[-1].partition(":")[0]

    def wrap(self, owner: Any, name: str, label: str | Callable[..., str]) -> None:
        """Time all calls of ``owner.name``; a label may depend on their arguments."""
        inner = getattr(owner, name)

        def timed(*args: Any, **kwargs: Any) -> Any:
            self._running.append(label if isinstance(label, str) else label(*args))
            self._within.append(0.0)
            begin = time.perf_counter()
            try:
                return inner(*args, **kwargs)
            finally:
                elapsed = time.perf_counter() - begin
                self.seconds[self._running.pop()] += elapsed - self._within.pop()
                if self._within:
                    self._within[-1] += elapsed

        setattr(owner, name, timed)


class Parts(Callback):
    """Put a clock around the parts of a tick as the training starts."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        wrap, module = self.clock.wrap, pl_module
        data = trainer.datamodule  # type: ignore[attr-defined]
        wrap(module, "training_step", "tick: rest")
        wrap(data, "collect", "collector: rest")
        wrap(data.collector.envs, "step", "collector: environment")
        wrap(module, "explore", "collector: policy")
        wrap(data.collector.replay, "add", "replay: write")
        wrap(data, "sample", "replay: sample")
        wrap(module, "update", "critics: forward, and rest of the update")
        wrap(module, "_target", "critics: targets")
        wrap(module, "policy_objective", "policy: forward")
        wrappers: Any = module.optimizers()
        wrap(module, "_descend", lambda optimizer, *_: f"{NETWORKS[wrappers.index(optimizer)]}: rest of the step")
        wrap(module, "backward", lambda _: f"{self.clock.network}: backward")
        for network, wrapper, optimizer in zip(NETWORKS, wrappers, trainer.optimizers, strict=True):
            wrap(wrapper, "step", f"{network}: Lightning around Adam")
            wrap(optimizer, "step", f"{network}: Adam")
        # Lightning runs its hooks inside the optimiser's closure
        wrap(trainer.strategy.precision_plugin, "_wrap_closure", lambda *_: f"{self.clock.network}: Lightning around Adam")


def profile(name: str, setting: Setting, steps: int) -> dict[str, float]:
    """Return milliseconds of each part for one step: a decision and an update.

    Args:
        name: ``sac`` or ``protosac``.
        setting: environment and sizes.
        steps: decisions and updates that are timed.
    """
    warm_up = setting.batch_size  # random decisions, whose time is nothing beside that of the updates
    trainer, module, data = our_agent(setting, warm_up + steps, learning_starts=warm_up, module_class=MODULES[name])
    clock = Clock()
    trainer.callbacks.append(Parts(clock))  # type: ignore[attr-defined]
    clock.wrap(trainer, "fit", "Lightning: start and loop")
    moving = sac_module.move_towards
    clock.wrap(sac_module, "move_towards", "target critics: move")
    try:
        trainer.fit(module, datamodule=data)
    finally:
        sac_module.move_towards = moving
    return {part: 1000 * seconds / steps for part, seconds in clock.seconds.items()}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.sac_profile", description=(__doc__ or "").partition(":")[0])
    parser.add_argument("--module", choices=sorted(MODULES), default="sac")
    parser.add_argument("--env", default="Pendulum-v1", help="a Gymnasium environment")
    parser.add_argument("--hidden", type=int, default=64, help="width of the hidden layers")
    parser.add_argument("--batch-size", type=int, default=128)
    parser.add_argument("--train-freq", type=int, default=4, help="decisions of a tick")
    parser.add_argument("--steps", type=int, default=2_000, help="decisions and updates of the training")
    options = parser.parse_args(arguments)
    setting = Setting(options.env, options.hidden, options.batch_size, options.train_freq)
    parts = profile(options.module, setting, options.steps)
    whole = sum(parts.values())
    rows = [(part, f"{spent:.3f}", f"{100 * spent / whole:.1f}") for part, spent in sorted(parts.items())]
    print(table(["part", "ms a step", "%"], [*rows, ("sum", f"{whole:.3f}", "100.0")]))
    return 0


if __name__ == "__main__":
    sys.exit(main())

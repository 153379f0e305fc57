"""How well an agent that decides by prototypes can be read: numbers, pictures and a file of its prototypes."""

import functools
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from torch import Tensor
from torchmetrics import MeanMetric

from callbacks.figure_style import figure_style
from callbacks.figures import publish_figure
from callbacks.prototype_figures import cards_figure, leading_colours, strip_figure, timeline_figure, turning_moments
from callbacks.state_pictures import draw_state

MOMENTS = 8


class Measures(Protocol):
    """What a module finds out about its prototypes on states that it visits.

    Attributes:
        effective_prototypes: on how many a decision leans, a scalar.
        prototypes_used: share with a mean weight above 1 %, a scalar.
        explanation_stability: overlap of explanations with and without noise, a scalar.
        usage: mean weight of each prototype, ``[K]``.
        nearest, distances: the states nearest to each prototype, as indices, and how far they are, ``[K, J]``.
    """

    effective_prototypes: Tensor
    prototypes_used: Tensor
    explanation_stability: Tensor
    usage: Tensor
    nearest: Tensor
    distances: Tensor


class Visit(NamedTuple):
    """An episode that was looked at.

    Attributes:
        number: its number.
        seen: what the module observed, ``[T, n]``.
        record: what the data module wrote down: ``obs``, ``actions``, ``rewards``, ``frames``.
    """

    number: int
    seen: Tensor
    record: Any


class PrototypeReport(Callback):
    """Measure and show at the test how an agent decides by prototypes.

    Logged are, with every prototype on its state if :class:`callbacks.PrototypeGrounding` is there:

    - ``test/return_top{m}``: mean return of the test episodes, on all ranks, when only the m most similar prototypes of each state
      act (all of them if there are fewer);
    - ``test/effective_prototypes``, ``test/prototypes_used``, ``test/explanation_stability``: see :class:`Measures`, on the states
      of some test episodes that rank zero plays again and writes down;
    - ``test/drift``: the largest distance from a prototype, as training left it, to the embedding of its state.

    Rank zero publishes the figures ``prototype_cards``, ``decision_timeline`` and ``episode_strip``, and writes every prototype's
    state, actions, usage and nearest visited states into ``prototypes.json`` in the run folder.

    Args:
        top_m: numbers m; each costs the test's episodes once more.
        fidelity_every_validation: log ``val/return_top{m}`` as well.
        figures_at_test: draw the figures.
        episodes: test episodes to write down, of those that rank zero plays.
        noise: noise that explanations should bear, as a share of the visited states' deviation.
        cards: prototypes in the figure of cards, the most used first.
        nearest: visited states in the file, for each prototype.

    Raises:
        ValueError: if a number is not positive, or the module has no prototype actor.
    """

    def __init__(
        self,
        top_m: Sequence[int] = (1, 3, 5),
        fidelity_every_validation: bool = False,
        figures_at_test: bool = True,
        episodes: int = 3,
        noise: float = 0.01,
        cards: int = 8,
        nearest: int = 3,
    ) -> None:
        if min([*top_m, episodes, cards, nearest]) < 1 or noise <= 0:
            raise ValueError(f"PrototypeReport needs positive numbers, got {top_m=}, {episodes=}, {noise=}, {cards=}, {nearest=}")
        self.top_m = tuple(top_m)
        self.fidelity_every_validation, self.figures_at_test = fidelity_every_validation, figures_at_test
        self.episodes, self.noise, self.cards, self.nearest = episodes, noise, cards, nearest
        self._returns: dict[int, MeanMetric] = {}
        self._numbers: list[int] = []

    def setup(self, trainer: Trainer, pl_module: Any, stage: str) -> None:
        if not (hasattr(pl_module, "interpretability") and hasattr(getattr(pl_module, "actor", None), "prototype_states")):
            raise ValueError(
                f"PrototypeReport needs a module with a prototype actor, which {type(pl_module).__name__} has not: "
                "leave the callback out"
            )

    def on_validation_epoch_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._begin(pl_module)

    def on_validation_batch_end(
        self, trainer: Trainer, pl_module: Any, outputs: Any, batch: Tensor, batch_idx: int, dataloader_idx: int = 0
    ) -> None:
        if self.fidelity_every_validation:
            self._play(trainer, pl_module, batch)

    def on_validation_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if self.fidelity_every_validation:
            self._log_returns(pl_module, "val")

    def on_test_start(self, trainer: Trainer, pl_module: Any) -> None:
        """Measure the drift before the prototypes are set on their states."""
        self._drift = pl_module.actor.drift()

    def on_test_epoch_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._begin(pl_module)

    def on_test_batch_end(
        self, trainer: Trainer, pl_module: Any, outputs: Any, batch: Tensor, batch_idx: int, dataloader_idx: int = 0
    ) -> None:
        self._play(trainer, pl_module, batch)
        self._numbers += batch.tolist()

    def on_test_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._log_returns(pl_module, "test")
        measured = self._report(trainer, pl_module) if trainer.is_global_zero else {}
        measured = trainer.strategy.broadcast(measured)
        for name, value in {**measured, "drift": float(self._drift)}.items():
            pl_module.log(f"test/{name}", value, sync_dist=True)

    def _begin(self, pl_module: LightningModule) -> None:
        self._returns = {m: MeanMetric().to(pl_module.device) for m in self.top_m}
        self._numbers = []

    def _play(self, trainer: Trainer, pl_module: Any, episodes: Tensor) -> None:
        """Play the episodes of this rank once for every m."""
        actor = pl_module.actor
        for m, mean in self._returns.items():
            act = functools.partial(actor.mode, top_m=min(m, len(actor.prototype_states)))
            with trainer.precision_plugin.forward_context():
                mean.update(trainer.datamodule.evaluate(act, episodes).returns)  # type: ignore[attr-defined]

    def _log_returns(self, pl_module: LightningModule, stage: str) -> None:
        for m, mean in self._returns.items():
            pl_module.log(f"{stage}/return_top{m}", mean.compute(), sync_dist=True)

    @torch.no_grad()
    def _report(self, trainer: Trainer, pl_module: Any) -> dict[str, float]:
        """Look at some episodes on this rank; write the file, draw the figures and return what to log."""
        with trainer.precision_plugin.forward_context():
            visits = [self._visit(trainer, pl_module, number) for number in self._numbers[: self.episodes]]
            generator = torch.Generator(pl_module.device).manual_seed(0)
            found: Measures = pl_module.interpretability(
                torch.cat([visit.seen for visit in visits]), self.noise, self.nearest, generator
            )
            weights = pl_module.actor(visits[0].seen).weights.float().cpu()
        states = trainer.datamodule.as_observed(pl_module.actor.prototype_states).cpu()  # type: ignore[attr-defined]
        self._export(Path(trainer.default_root_dir) / "prototypes.json", pl_module.actor, states, found, visits)
        if self.figures_at_test:
            self._draw(trainer, pl_module.actor, states, found, visits, weights)
        names = ("effective_prototypes", "prototypes_used", "explanation_stability")
        return {name: float(getattr(found, name)) for name in names}

    def _visit(self, trainer: Trainer, pl_module: Any, number: int) -> Visit:
        """Play an episode once more, and keep what the module sees; pictures are kept of the first only."""
        seen: list[Tensor] = []

        def act(obs: Tensor) -> Tensor:
            seen.append(obs)
            return pl_module.exploit(obs)

        record = trainer.datamodule.record_episode(act, number)  # type: ignore[attr-defined]
        if number != self._numbers[0]:
            record.frames.clear()
        return Visit(number, torch.cat(seen).clone(), record)

    def _export(self, path: Path, actor: Any, states: Tensor, found: Measures, visits: Sequence[Visit]) -> None:
        """Write all prototypes so that the file is either absent or complete."""
        places = [(visit.number, decision) for visit in visits for decision in range(len(visit.seen))]
        obs = torch.cat([visit.record.obs for visit in visits])
        prototypes = [
            {
                "prototype": k,
                "state": states[k].tolist(),
                "mean_action": actor.means[k].tanh().tolist(),
                "std_before_squashing": actor.stds[k].tolist(),
                "usage": float(found.usage[k]),
                "nearest": [
                    {"episode": places[place][0], "decision": places[place][1], "distance": distance, "state": obs[place].tolist()}
                    for place, distance in zip(found.nearest[k].tolist(), found.distances[k].tolist(), strict=True)
                ],
            }
            for k in range(len(states))
        ]
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = path.with_name(f".{path.name}.{os.getpid()}")
        temporary.write_text(json.dumps(prototypes, indent=1))
        temporary.replace(path)

    def _draw(
        self, trainer: Trainer, actor: Any, states: Tensor, found: Measures, visits: Sequence[Visit], weights: Tensor
    ) -> None:
        """Draw the cards, and the first episode from above and in moments."""
        first = visits[0]
        record = first.record
        known = torch.cat([states, *(visit.record.obs for visit in visits)])
        env_id = trainer.datamodule.env  # type: ignore[attr-defined]
        paint = functools.partial(draw_state, env_id=env_id, low=known.amin(dim=0), high=known.amax(dim=0))
        colours = leading_colours(weights)
        usage = found.usage.float().cpu()
        most_used = usage.topk(min(self.cards, len(usage))).indices
        means, stds = (values.detach().float().cpu()[most_used] for values in (actor.means, actor.stds))
        title = f"episode {first.number} of the test, return {float(record.rewards.sum()):.0f}"
        with figure_style():
            cards = cards_figure(most_used.tolist(), states[most_used], means, stds, usage[most_used], colours, paint)
            publish_figure(trainer, cards, "prototype_cards")
            timeline = timeline_figure(weights, record.actions, record.rewards, colours, title)
            publish_figure(trainer, timeline, "decision_timeline")
            strip = strip_figure(
                moments=turning_moments(weights, MOMENTS),
                obs=record.obs,
                actions=record.actions,
                frames=record.frames,
                weights=weights,
                prototype_states=states,
                prototype_actions=actor.means.detach().float().cpu().tanh(),
                colours=colours,
                title=title,
                paint=paint,
            )
            publish_figure(trainer, strip, "episode_strip")

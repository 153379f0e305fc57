"""Lightning modules that train agents to coordinate: Sheaf-ADMM and its recurrent message-passing baseline."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor

from lightning_modules.sheaf_admm.admm import ADMMOutput, SheafADMM
from lightning_modules.sheaf_admm.agent_module import AgentModule, horizon_bounds
from lightning_modules.sheaf_admm.baselines import Pooling, RecurrentMPNN, Routing
from lightning_modules.sheaf_admm.interventions import Intervention
from lightning_modules.sheaf_admm.laplacian import SheafLaplacian
from lightning_modules.sheaf_admm.layers import Dense, PositiveDense
from lightning_modules.sheaf_admm.restriction_maps import Kind as MapKind
from lightning_modules.sheaf_admm.restriction_maps import LoraInit, RestrictionMaps
from lightning_modules.sheaf_admm.task import AgentTask, Batch
from lightning_modules.sheaf_admm.x_solvers import DiagonalProx
from lightning_modules.sheaf_admm.z_solvers import CGConsensus, ExactConsensus, GDConsensus, Mode, Start, ZSolver


@dataclass
class AnswerHistory:
    """How K iterations on a batch of B samples went.

    Attributes:
        primal: primal residual of each agent, ``[K, N, B]``.
        dual: dual residual of each agent, ``[K, N, B]``.
        memory: size of each agent's disagreement memory, ``|u|``, ``[K, N, B]``.
        disagreement: root mean square of the disagreement on all edges, ``[K, B]``.
        answers: the answer read after each iteration, ``[K, B, cells]``.
        correct: whether it is right, ``[K, B]``.
    """

    primal: Tensor
    dual: Tensor
    memory: Tensor
    disagreement: Tensor
    answers: Tensor
    correct: Tensor


class SheafADMMModule(AgentModule):
    r"""Agents that agree by unrolled ADMM on a learned sheaf.

    The encoder gives each agent a convex objective :math:`f_i(x) = \tfrac12 x^\top \mathrm{diag}(Q_i) x + q_i^\top x` with
    :math:`x \ge \text{lower}`; restriction maps say what neighbours must agree on; ``train_horizon`` iterations of ADMM are
    unrolled and trained end to end.

    Args:
        task: the problem.
        edge_dim: length of what two neighbours compare; None takes the task's own (the whole state with identity maps).
        maps: kind of restriction maps, see ``RestrictionMaps``; None takes the task's own.
        lora_rank: rank of the context-dependent part of the maps; 0 has none.
        lora_init: "standard" or "legacy", see ``RestrictionMaps``.
        consensus: "soft" penalises disagreement with weight ``gamma``, "hard" projects onto agreement.
        gamma: weight of disagreement when it is soft.
        solver: solver of the z-update: "cg", "gd" or "exact".
        solver_steps: steps of that solver per iteration.
        start: start vector of a hard "cg" solver, see ``CGConsensus``.
        rho_init: first value of the learned ADMM penalty.
        alpha: over-relaxation, 1 is none.
        l1: weight λ of the objective's absolute value.
        lower: lower bound of all coordinates; None is no bound.
        upper: upper bound of all coordinates; None is no bound.
        learned_box: read λ and the upper bound of each coordinate from the features; training starts at ``l1`` and ``upper``.
        z_init: first consensus, "h" or "zeros".
        checkpoint_every: recompute activations in blocks of so many iterations to save memory; 0 keeps them all.
        grad_window: differentiate only the last so many iterations; None all.
        loss_window: the training loss is the mean over so many last iterates.
        **options: those of :class:`AgentModule`.

    Source: Sheaf-ADMM (arXiv 2605.31005), section 3.
    """

    def __init__(
        self,
        task: AgentTask,
        edge_dim: int | None = None,
        maps: MapKind | None = None,
        lora_rank: int = 0,
        lora_init: LoraInit = "standard",
        consensus: Mode = "soft",
        gamma: float = 2.0,
        solver: Literal["cg", "gd", "exact"] = "cg",
        solver_steps: int = 5,
        start: Start | None = None,
        rho_init: float = 0.25,
        alpha: float = 1.0,
        l1: float = 0.0,
        lower: float | None = 0.0,
        upper: float | None = None,
        learned_box: bool = False,
        z_init: Literal["h", "zeros"] = "h",
        checkpoint_every: int = 0,
        grad_window: int | None = None,
        loss_window: int = 2,
        **options: Any,
    ) -> None:
        super().__init__(task, loss_window=loss_window, **options)
        self.curvature_head = PositiveDense(task.feature_dim, task.state_dim)
        self.slope_head = Dense(task.feature_dim, task.state_dim)
        maps = maps or task.maps
        self.restriction_maps = RestrictionMaps(
            maps,
            stalk_dim=task.state_dim,
            edge_dim=edge_dim or (task.state_dim if maps == "identity" else task.edge_dim),
            num_slots=task.num_slots,
            feature_dim=task.feature_dim,
            lora_rank=lora_rank,
            lora_init=lora_init,
            norm="rms" if maps == "sudoku" else "layer",
        )
        z_solvers: dict[str, Callable[[], ZSolver]] = {
            "cg": lambda: CGConsensus(consensus, gamma, solver_steps, start),
            "gd": lambda: GDConsensus(consensus, gamma, solver_steps),
            "exact": lambda: ExactConsensus(consensus, gamma),
        }
        if solver not in z_solvers:
            raise ValueError(f"solver must be one of {', '.join(z_solvers)}, not {solver!r}")
        self.admm = SheafADMM(
            z_solvers[solver](),
            rho_init=rho_init,
            alpha=alpha,
            z_init=z_init,
            checkpoint_every=checkpoint_every,
            grad_window=grad_window,
        )
        if grad_window is not None and grad_window < loss_window:
            raise ValueError(f"grad_window={grad_window} must cover loss_window={loss_window}")
        self.l1, self.lower = l1, -torch.inf if lower is None else lower
        self.upper = torch.inf if upper is None else upper
        self.l1_head = self.upper_head = None
        if learned_box:
            if l1 <= 0 or upper is None:
                raise ValueError(f"learned_box starts at l1 > 0 and at upper, which must be given: got {l1=} and {upper=}")
            self.l1_head = PositiveDense(task.feature_dim, task.state_dim, floor=0.0, start=l1)
            self.upper_head = PositiveDense(task.feature_dim, task.state_dim, floor=0.0, start=upper)
        _, longest = horizon_bounds(self.train_horizon)
        if longest == 0:
            for part in (self.curvature_head, self.slope_head, self.l1_head, self.upper_head, self.admm):
                if part is not None:
                    part.requires_grad_(False)
        if longest <= 1:
            self.restriction_maps.requires_grad_(False)

    def compile(self, *args: Any, **kwargs: Any) -> None:
        """Compile one ADMM iteration, which all K share: the whole unrolled step would compile K times as long."""
        self.admm.iteration = torch.compile(self.admm.iteration, *args, **kwargs)  # type: ignore[method-assign]

    def coordinate(
        self, batch: Batch, horizon: int, interventions: Sequence[Intervention] = (), **options: Any
    ) -> tuple[ADMMOutput, Tensor]:
        """Encode the agents' views and run ADMM on them.

        Args:
            batch: the boards.
            horizon: number of iterations.
            interventions: changes to the views and to the run.
            **options: further arguments of ``SheafADMM.forward``: ``keep``, ``record``, ``stop``.

        Returns:
            What ADMM returns, and what the agents saw.
        """
        view = self.task.views(batch)
        for intervention in interventions:
            view = intervention.on_view(view)
        return self.admm(*self._problem(batch, view), steps=horizon, interventions=interventions, **options), view

    def iterates(self, batch: Batch, wanted: Sequence[int]) -> dict[int, Tensor]:
        return self.coordinate(batch, max(wanted), keep=wanted)[0].kept

    @torch.no_grad()
    def admm_history(self, batch: Batch, steps: int, interventions: Sequence[Intervention] = ()) -> AnswerHistory:
        """Coordinate for ``steps`` iterations, with or without interventions, and report on each of them."""
        output, view = self.coordinate(batch, steps, interventions, record=True)
        history = output.history
        if history is None:
            raise ValueError("a history needs at least one step")
        logits = (self.task.decode(x_NBd, view) for x_NBd in history.x)
        answers_KBc = torch.stack([self.task.aggregate(logits_NB, batch).argmax(dim=-1) for logits_NB in logits])
        memory_KNB = history.u.norm(dim=-1)
        correct_KB = self.task.correct(answers_KBc, batch)
        return AnswerHistory(history.primal, history.dual, memory_KNB, history.disagreement, answers_KBc, correct_KB)

    @torch.no_grad()
    def locate_nonfinite(self, batch: Batch, horizon: int) -> str:
        found = self.admm.first_nonfinite(*self._problem(batch, self.task.views(batch)), steps=horizon)
        return found or "the decoder or the loss"

    def _problem(self, batch: Batch, view: Tensor) -> tuple[DiagonalProx, SheafLaplacian, Tensor]:
        """Encode views into the agents' objectives, the sheaf and the start; the first two in full precision."""
        h_NBd, f_NBf = self.task.encode(view)
        with torch.autocast(f_NBf.device.type, enabled=False):
            f_NBf = f_NBf.to(self.slope_head.weight.dtype)
            laplacian = self.restriction_maps(self.task.graph_of(batch), f_NBf, self.task.edge_mask(batch))

            def read(head: Dense | None, constant: float) -> Tensor | float:
                return constant if head is None else laplacian.arranged(head(f_NBf))

            objective = DiagonalProx(
                laplacian.arranged(self.curvature_head(f_NBf)),
                laplacian.arranged(self.slope_head(f_NBf)),
                l1=read(self.l1_head, self.l1),
                low=self.lower,
                high=read(self.upper_head, self.upper),
                validate_args=False,
            )
        return objective, laplacian, h_NBd


class RecurrentMPNNModule(AgentModule):
    """Agents that exchange learned messages in gated rounds, with the same encoder and decoder: the baseline of Sheaf-ADMM.

    Args:
        task: the problem.
        message_dim: length of a message.
        pooling: how an agent pools messages, "max" or "mean".
        routing: "receiver" pools all of an agent's messages into one vector (the kind released with the paper),
            "receiver_slot" those of each of its slots apart.
        **options: those of :class:`AgentModule`.

    Source: Sheaf-ADMM (arXiv 2605.31005), appendix on baselines; ``receiver_slot`` is ours.
    """

    def __init__(
        self,
        task: AgentTask,
        message_dim: int = 32,
        pooling: Pooling = "max",
        routing: Routing = "receiver",
        **options: Any,
    ) -> None:
        super().__init__(task, **options)
        self.mpnn = RecurrentMPNN(task.num_slots, task.state_dim, message_dim, pooling, routing)
        if horizon_bounds(self.train_horizon)[1] == 0:
            self.mpnn.requires_grad_(False)
            self.mpnn.start.requires_grad_(True)

    def compile(self, *args: Any, **kwargs: Any) -> None:
        """Compile one round, which all K share."""
        self.mpnn._round = torch.compile(self.mpnn._round, *args, **kwargs)  # type: ignore[method-assign]

    def iterates(self, batch: Batch, wanted: Sequence[int]) -> dict[int, Tensor]:
        if self.task.edge_mask(batch) is not None:
            raise ValueError("RecurrentMPNNModule cannot leave agents out: set the data's dropout_mode to zero_pixels")
        h_NBd, _ = self.task.encode(self.task.views(batch))
        _, kept = self.mpnn(self.task.graph_of(batch), h_NBd, max(wanted), keep=wanted)
        return kept

"""What a coordination model must know about a problem: who sees what, how views become states and states become answers."""

import inspect
from abc import ABC, abstractmethod
from typing import Any

import torch
from torch import Tensor, nn
from torchmetrics import MetricCollection

from lightning_modules.sheaf_admm.graph import AgentGraph
from lightning_modules.sheaf_admm.restriction_maps import Kind as MapKind

Batch = dict[str, Tensor]


class AgentTask(nn.Module, ABC):
    """A problem that many agents solve together; all agents share one encoder and one decoder.

    Legend of shapes: N agents, B batch, d state; ``...`` before ``N`` are iterates.

    Attributes:
        num_slots: number of types of edge ends in its graphs.
        maps: kind of restriction maps that suits the task, see ``RestrictionMaps``.
        state_dim: length d of an agent's state.
        edge_dim: length of what neighbours compare, unless the model is told otherwise.
        feature_dim: length of the features f from which the agents' objectives are read.
        arguments: the constructor's arguments by name, with defaults filled in.
    """

    num_slots: int
    maps: MapKind
    state_dim: int
    edge_dim: int
    feature_dim: int
    arguments: dict[str, Any]

    def __new__(cls, *args: Any, **kwargs: Any) -> "AgentTask":
        task = super().__new__(cls)
        bound = inspect.signature(cls).bind_partial(*args, **kwargs)
        bound.apply_defaults()
        task.__dict__["arguments"] = dict(bound.arguments)
        return task

    def specification(self) -> dict[str, Any]:
        """Describe the task in plain values, as a configuration file would: ``class_path`` and ``init_args``."""
        return {"class_path": f"{type(self).__module__}.{type(self).__qualname__}", "init_args": self.arguments}

    @property
    def dtype(self) -> torch.dtype:
        """Number format of the weights."""
        return next(self.parameters()).dtype

    @abstractmethod
    def graph_of(self, batch: Batch) -> AgentGraph:
        """Return who talks to whom on the boards of this batch."""

    def edge_mask(self, batch: Batch) -> Tensor | None:
        """Return weights of the edges, ``[E]`` or ``[E, B]``; 0 silences an edge, None leaves all as they are."""
        return None

    @abstractmethod
    def views(self, batch: Batch) -> Tensor:
        """Cut the batch into what each agent sees, ``[N, B, ...]``."""

    @abstractmethod
    def encode(self, view: Tensor) -> tuple[Tensor, Tensor]:
        """Return the agents' first states ``h_NBd`` and their features ``f_NBf``."""

    @abstractmethod
    def decode(self, x: Tensor, view: Tensor) -> Tensor:
        """Read logits from states ``[..., N, B, d]`` and views."""

    @abstractmethod
    def loss(self, logits: Tensor, batch: Batch) -> Tensor:
        """Mean loss of all agents and iterates, a scalar."""

    @abstractmethod
    def aggregate(self, logits: Tensor, batch: Batch) -> Tensor:
        """Join the agents' logits ``[N, B, ...]`` into those of the answer, ``[B, cells, classes]``."""

    @abstractmethod
    def targets(self, batch: Batch) -> Tensor:
        """The right answer, ``[B, cells]``."""

    def correct(self, tokens: Tensor, batch: Batch) -> Tensor:
        """Say which answers ``[..., B, cells]`` solve their problem, ``[..., B]``."""
        return (tokens == self.targets(batch)).all(dim=-1)

    @abstractmethod
    def metrics(self, prefix: str, postfix: str = "") -> MetricCollection:
        """Metrics of the answer, which take what :meth:`metric_inputs` returns."""

    def metric_inputs(self, answer: Tensor, batch: Batch) -> dict[str, Tensor]:
        """What ``metrics`` are updated with, from the answer's logits ``[B, cells, classes]``."""
        return {"predictions": answer.argmax(dim=-1), "targets": self.targets(batch)}

"""Mazes as a coordination task: one agent a patch of pixels, all together mark the path from start to goal."""

import torch
from torch import Tensor, nn
from torchmetrics import MetricCollection

from lightning_modules.sheaf_admm.graph import AgentGraph
from lightning_modules.sheaf_admm.layers import NORM_EPS, Dense, gelu
from lightning_modules.sheaf_admm.metrics import CellAccuracy, ExactSolve
from lightning_modules.sheaf_admm.patches import PatchGrid, patch_grid
from lightning_modules.sheaf_admm.task import AgentTask, Batch

TOKENS = 6
WALL, PATH = 1, 5


class MazeTask(AgentTask):
    r"""Views, encoder, decoder, loss and vote of the agents on a maze.

    An agent sees the tokens of its patch, one-hot, and answers with the tokens of the same patch of the solved maze. With ``o`` the
    one-hot view,

    .. math::
        f = \mathrm{GELU}(W_1\,\mathrm{RMSNorm}(o)), \qquad h = \mathrm{LayerNorm}(W_2 f), \qquad
        \text{logits} = W_4\,\mathrm{GELU}(W_3\,\mathrm{RMSNorm}[o, x]).

    A pixel's answer is the mean of the logits of all agents that see it. A maze is solved when the marked pixels are exactly the
    path. Nothing depends on the size of the maze.

    Args:
        state_dim: length d of an agent's state.
        edge_dim: length of what neighbours compare.
        hidden_dim: width of encoder and decoder.
        patch: side of the square that an agent sees.
        stride: pixels between neighbouring agents.

    Source: Sheaf-ADMM (arXiv 2605.31005), section 4 and its released configuration.
    """

    maps = "directional"
    num_slots = 8

    def __init__(self, state_dim: int = 10, edge_dim: int = 5, hidden_dim: int = 256, patch: int = 3, stride: int = 2) -> None:
        super().__init__()
        self.state_dim, self.edge_dim, self.feature_dim = state_dim, edge_dim, hidden_dim
        self.patch, self.stride = patch, stride
        view_dim = patch**2 * TOKENS
        self.encoder = nn.Sequential(nn.RMSNorm(view_dim, eps=NORM_EPS), Dense(view_dim, hidden_dim), gelu())
        self.to_state = nn.Sequential(Dense(hidden_dim, state_dim), nn.LayerNorm(state_dim, eps=NORM_EPS))
        self.decoder = nn.Sequential(
            nn.RMSNorm(view_dim + state_dim, eps=NORM_EPS),
            Dense(view_dim + state_dim, hidden_dim),
            gelu(),
            Dense(hidden_dim, view_dim),
        )

    def graph_of(self, batch: Batch) -> AgentGraph:
        """Return the 8-connected grid of the batch's patches."""
        return self._patches(batch).graph(batch["maze"].device)

    def views(self, batch: Batch) -> Tensor:
        """Cut mazes ``[B, H, W]`` into one-hot patches ``[N, B, p * p * 6]``; outside is wall."""
        tokens_NBp = self._patches(batch).cut(batch["maze"], outside=WALL)
        return nn.functional.one_hot(tokens_NBp, TOKENS).flatten(2).to(self.dtype)

    def encode(self, view: Tensor) -> tuple[Tensor, Tensor]:
        """Return first states ``h_NBd`` and features ``f_NBf`` of one-hot views."""
        f_NBf = self.encoder(view)
        return self.to_state(f_NBf), f_NBf

    def decode(self, x: Tensor, view: Tensor) -> Tensor:
        """Read the logits of each pixel of each patch, ``[..., N, B, p * p, 6]``."""
        seen_and_state = torch.cat([view.expand(*x.shape[:-1], -1), x], dim=-1)
        return self.decoder(seen_and_state).unflatten(-1, (-1, TOKENS))

    def loss(self, logits: Tensor, batch: Batch) -> Tensor:
        """Cross-entropy of every agent's pixels inside the picture, mean over iterates, agents, batch and pixels."""
        tokens_NBp = self._patches(batch).cut(batch["solution"], outside=-1)
        tokens = tokens_NBp.expand(logits.shape[:-1])
        return nn.functional.cross_entropy(logits.flatten(0, -2), tokens.flatten(), ignore_index=-1)

    def aggregate(self, logits: Tensor, batch: Batch) -> Tensor:
        """Mean logits of the agents that see a pixel, ``[B, H * W, 6]``."""
        return self._patches(batch).stitch(logits).flatten(1, 2)

    def targets(self, batch: Batch) -> Tensor:
        """The solved maze, row by row, ``[B, H * W]``."""
        return batch["solution"].flatten(1)

    def metrics(self, prefix: str, postfix: str = "") -> MetricCollection:
        """Share of mazes whose marked pixels are exactly the path, and of open pixels rightly marked or not."""
        return MetricCollection(
            {"solved": ExactSolve(), "open_accuracy": CellAccuracy(blanks_only=True)},
            prefix=prefix,
            postfix=postfix,
            compute_groups=False,
        )

    def correct(self, tokens: Tensor, batch: Batch) -> Tensor:
        """Whether exactly the path is marked; other tokens do not matter."""
        return ((tokens == PATH) == (self.targets(batch) == PATH)).all(dim=-1)

    def metric_inputs(self, answer: Tensor, batch: Batch) -> dict[str, Tensor]:
        marked, path = answer.argmax(dim=-1) == PATH, self.targets(batch) == PATH
        return {"predictions": marked, "targets": path, "blanks": batch["maze"].flatten(1) != WALL}

    def _patches(self, batch: Batch) -> PatchGrid:
        return patch_grid(*batch["maze"].shape[1:], self.patch, self.stride)

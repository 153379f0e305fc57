"""Images of digits as a coordination task: one agent a patch, all together name the digit."""

from typing import Literal

from torch import Tensor, nn
from torchmetrics import MetricCollection

from lightning_modules.sheaf_admm.graph import AgentGraph
from lightning_modules.sheaf_admm.layers import NORM_EPS, Dense, gelu
from lightning_modules.sheaf_admm.metrics import CellAccuracy
from lightning_modules.sheaf_admm.patches import PatchGrid, patch_grid
from lightning_modules.sheaf_admm.task import AgentTask, Batch


class MNISTPatchTask(AgentTask):
    r"""Views, encoder, decoder, loss and vote of the agents on an image.

    An agent sees the grey values ``o`` of its patch,

    .. math::
        a = W_0\, o, \qquad f = a + W_2\,\mathrm{GELU}(W_1\,\mathrm{RMSNorm}(a)), \qquad h = \mathrm{LayerNorm}(W_3 f),

    and names the digit by a linear map of its state alone. The answer is the mean of the agents' probabilities. An agent that is
    marked in ``batch["dropped"]`` neither talks nor votes. Nothing depends on the size of the image.

    Args:
        state_dim: length d of an agent's state.
        edge_dim: length of what neighbours compare.
        hidden_dim: width of the encoder.
        patch: side of the square that an agent sees.
        stride: pixels between neighbouring agents.
        connectivity: 8 neighbours, or 4 without the diagonals.
        num_classes: number of classes.
        readout: "vote" lets each agent name the digit; "pooled" reads it from the mean state of all agents through a hidden layer
            of 128 units, as the released message-passing baseline does.

    Source: Sheaf-ADMM (arXiv 2605.31005), section 4 and its released configuration.
    """

    maps = "global"
    num_slots = 8

    def __init__(
        self,
        state_dim: int = 32,
        edge_dim: int = 24,
        hidden_dim: int = 256,
        patch: int = 3,
        stride: int = 3,
        connectivity: int = 8,
        num_classes: int = 10,
        readout: Literal["vote", "pooled"] = "vote",
    ) -> None:
        super().__init__()
        if readout not in ("vote", "pooled"):
            raise ValueError(f"readout must be 'vote' or 'pooled', not {readout!r}")
        self.state_dim, self.edge_dim, self.feature_dim = state_dim, edge_dim, hidden_dim
        self.patch, self.stride, self.connectivity = patch, stride, connectivity
        self.pooled = readout == "pooled"
        self.embed = Dense(patch**2, hidden_dim)
        self.mlp = nn.Sequential(
            nn.RMSNorm(hidden_dim, eps=NORM_EPS), Dense(hidden_dim, hidden_dim), gelu(), Dense(hidden_dim, hidden_dim)
        )
        self.to_state = nn.Sequential(Dense(hidden_dim, state_dim), nn.LayerNorm(state_dim, eps=NORM_EPS))
        pooled_head = [Dense(state_dim, 128), gelu()] if self.pooled else []
        self.decoder = nn.Sequential(*pooled_head, Dense(128 if self.pooled else state_dim, num_classes))

    def graph_of(self, batch: Batch) -> AgentGraph:
        """Return the grid of the batch's patches."""
        return self._patches(batch).graph(batch["image"].device, self.connectivity)

    def edge_mask(self, batch: Batch) -> Tensor | None:
        """Silence the edges of dropped agents, ``[E, B]``."""
        if "dropped" not in batch:
            return None
        if self.pooled:
            raise ValueError("readout='pooled' cannot leave agents out: set the data's dropout_mode to zero_pixels")
        return self.graph_of(batch).edges_between(~batch["dropped"].t())

    def views(self, batch: Batch) -> Tensor:
        """Cut images ``[B, H, W]`` into patches ``[N, B, p * p]``; outside is black."""
        return self._patches(batch).cut(batch["image"], outside=0.0)

    def encode(self, view: Tensor) -> tuple[Tensor, Tensor]:
        """Return first states ``h_NBd`` and features ``f_NBf`` of grey patches."""
        embedded = self.embed(view)
        f_NBf = embedded + self.mlp(embedded)
        return self.to_state(f_NBf), f_NBf

    def decode(self, x: Tensor, view: Tensor) -> Tensor:
        """Read class logits ``[..., N, B, classes]``, or ``[..., 1, B, classes]`` from the pooled state."""
        return self.decoder(x.mean(dim=-3, keepdim=True) if self.pooled else x)

    def loss(self, logits: Tensor, batch: Batch) -> Tensor:
        """Cross-entropy of every agent's class, mean over iterates, agents and batch."""
        labels = batch["label"].expand(logits.shape[:-1])
        return nn.functional.cross_entropy(logits.flatten(0, -2), labels.flatten())

    def aggregate(self, logits: Tensor, batch: Batch) -> Tensor:
        """Logarithm of the mean probabilities of all agents that were not dropped, ``[B, 1, classes]``."""
        probability_NBc = logits.softmax(dim=-1)
        if "dropped" in batch:
            votes_NB1 = ~batch["dropped"].t().unsqueeze(-1)
            probability_NBc = probability_NBc * votes_NB1 * (len(votes_NB1) / votes_NB1.sum(dim=0).clamp_min(1))
        return probability_NBc.mean(dim=0).log().unsqueeze(1)

    def targets(self, batch: Batch) -> Tensor:
        """The class, ``[B, 1]``."""
        return batch["label"].unsqueeze(1)

    def metrics(self, prefix: str, postfix: str = "") -> MetricCollection:
        """Share of images named rightly."""
        return MetricCollection({"accuracy": CellAccuracy()}, prefix=prefix, postfix=postfix)

    def _patches(self, batch: Batch) -> PatchGrid:
        return patch_grid(*batch["image"].shape[1:], self.patch, self.stride)

"""Sudoku as a coordination task: one agent a row, column and box, each sees the ``side`` cells of its unit."""

import torch
from torch import Tensor, nn
from torchmetrics import MetricCollection

from lightning_modules.sheaf_admm.graph import AgentGraph
from lightning_modules.sheaf_admm.layers import NORM_EPS, Dense, MixerBlock, ResidualMLP
from lightning_modules.sheaf_admm.metrics import CellAccuracy, ExactSolve
from lightning_modules.sheaf_admm.task import AgentTask, Batch


class SudokuTask(AgentTask):
    r"""Views, encoder, decoder, loss and vote of the Sudoku agents.

    An agent's view holds the digits of its unit (0 blank). A token is the sum of three learned vectors, for the digit, the cell
    of the board and the slot in the view; two mixer blocks mix the unit's tokens; the state is made of ``side`` slices, one a
    cell,

    .. math::
        h = \mathrm{LayerNorm}(W [c_1, \dots, c_{side}]), \qquad c_k = \mathrm{RMSNorm}(W_c\, y_k),

    and the features ``f`` are the mean token. The decoder reads each slice alone. The answer of a cell is the mean of the logits
    of the three agents that see it.

    Args:
        box_shape: rows and columns of one box; None takes them from the data.
        cell_dim: length of a cell's slice of the state, so that the state has ``side * cell_dim`` numbers.
        model_dim: width of the encoder.
        decoder_dim: width of the decoder.
        mixer_blocks: number of mixer blocks.

    Raises:
        ValueError: if ``box_shape`` is missing or a batch holds boards of another size.

    Source: Sheaf-ADMM (arXiv 2605.31005), section 4 and its released configuration.
    """

    maps = "sudoku"
    views_of_cell: Tensor

    def __init__(
        self,
        box_shape: tuple[int, int] | None = None,
        cell_dim: int = 32,
        model_dim: int = 128,
        decoder_dim: int = 256,
        mixer_blocks: int = 2,
    ) -> None:
        super().__init__()
        if box_shape is None:
            raise ValueError("SudokuTask needs box_shape, the rows and columns of one box, for example (3, 3)")
        with torch.device("cpu"):  # indices, whose values are needed even where the weights have none yet
            self.graph = AgentGraph.sudoku(*box_shape)
        self.num_slots = self.side = side = box_shape[0] * box_shape[1]
        self.cell_dim = self.edge_dim = cell_dim
        self.state_dim = side * cell_dim
        self.feature_dim = model_dim
        # the three places (agent * side + slot) that show a cell, [cells, 3]
        self.register_buffer("views_of_cell", self.graph.cell_index.flatten().argsort(stable=True).view(-1, 3), persistent=False)

        self.digit_embedding = nn.Embedding(side + 1, model_dim)
        self.digit_bias = nn.Parameter(torch.zeros(model_dim))
        self.cell_embedding = nn.Parameter(torch.empty(side * side, model_dim))
        self.slot_embedding = nn.Parameter(torch.empty(side, model_dim))
        for table in (self.digit_embedding.weight, self.cell_embedding, self.slot_embedding):
            nn.init.normal_(table, std=model_dim**-0.5)
        self.mixer = nn.Sequential(*(MixerBlock(side, model_dim) for _ in range(mixer_blocks)), nn.RMSNorm(model_dim, eps=NORM_EPS))
        self.to_cell = nn.Sequential(Dense(model_dim, cell_dim), nn.RMSNorm(cell_dim, eps=NORM_EPS))
        self.to_state = nn.Sequential(Dense(self.state_dim, self.state_dim), nn.LayerNorm(self.state_dim, eps=NORM_EPS))
        self.decoder = nn.Sequential(ResidualMLP(cell_dim, decoder_dim), Dense(decoder_dim, side + 1))

    def graph_of(self, batch: Batch) -> AgentGraph:
        """Return the one graph of rows, columns and boxes."""
        return self.graph

    def views(self, batch: Batch) -> Tensor:
        """Cut puzzles ``[B, side, side]`` into the agents' units, ``[N, B, side]``."""
        return self._cut(batch["puzzle"])

    def encode(self, view_NBs: Tensor) -> tuple[Tensor, Tensor]:
        """Return first states ``h_NBd`` and features ``f_NBf`` of digits ``[N, B, side]``."""
        place_N1sm = (self.digit_bias + self.cell_embedding[self.graph.cell_index] + self.slot_embedding).unsqueeze(1)
        scale = (self.feature_dim / 2) ** 0.5
        token_NBsm = self.mixer(scale * (self.digit_embedding(view_NBs) + place_N1sm))
        return self.to_state(self.to_cell(token_NBsm).flatten(-2)), token_NBsm.mean(dim=-2)

    def decode(self, x: Tensor, view: Tensor) -> Tensor:
        """Read the logits of each cell, ``[..., side, side + 1]``, from states ``[..., side * cell_dim]`` alone."""
        return self.decoder(x.unflatten(-1, (self.side, self.cell_dim)))

    def loss(self, logits: Tensor, batch: Batch) -> Tensor:
        """Cross-entropy of every agent's cells, givens included, mean over iterates, agents, batch and cells."""
        digits = self._cut(batch["solution"]).expand(logits.shape[:-1])
        return nn.functional.cross_entropy(logits.flatten(0, -2), digits.flatten())

    def aggregate(self, logits_NBsc: Tensor, batch: Batch) -> Tensor:
        """Mean logits of the three agents that see a cell, ``[B, cells, classes]``."""
        per_view = logits_NBsc.transpose(0, 1).flatten(1, 2)
        return per_view[:, self.views_of_cell].mean(dim=2)

    def targets(self, batch: Batch) -> Tensor:
        """The solved board, row by row, ``[B, cells]``."""
        return batch["solution"].flatten(1)

    def metrics(self, prefix: str, postfix: str = "") -> MetricCollection:
        """Share of boards without a mistake, of right cells, and of right cells among the blanks."""
        return MetricCollection(
            {
                "solved": ExactSolve(),
                "cell_accuracy": CellAccuracy(),
                "blank_accuracy": CellAccuracy(blanks_only=True),
            },
            prefix=prefix,
            postfix=postfix,
            compute_groups=False,
        )

    def metric_inputs(self, answer: Tensor, batch: Batch) -> dict[str, Tensor]:
        return {**super().metric_inputs(answer, batch), "blanks": batch["puzzle"].flatten(1) == 0}

    def _cut(self, board: Tensor) -> Tensor:
        """Cut boards ``[B, side, side]`` into units ``[N, B, side]``."""
        if board.shape[1:] != (self.side, self.side):
            raise ValueError(
                f"this model was built for {self.side}x{self.side} Sudoku and got boards of shape {tuple(board.shape[1:])}: "
                "leave task.box_shape out to take it from the data"
            )
        return board.flatten(1).t()[self.graph.cell_index].transpose(1, 2)

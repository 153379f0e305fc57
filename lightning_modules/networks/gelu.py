"""Feed-forward network with GELU (plain torch)."""

from collections.abc import Iterable

from torch import Tensor, nn
from torch.nn.functional import gelu


class GELUFeedForward(nn.Module):
    r"""Return :math:`W_2 \operatorname{gelu}(W_1 x)`, without biases.

    Args:
        d_model: width of inputs and outputs.
        d_hidden: width between.

    Shapes: ``[..., d_model]`` to the same.

    Source: Gaussian Error Linear Units (arXiv 1606.08415).
    """

    def __init__(self, d_model: int, d_hidden: int) -> None:
        super().__init__()
        self.up = nn.Linear(d_model, d_hidden, bias=False)
        self.down = nn.Linear(d_hidden, d_model, bias=False)

    def residual_weights(self) -> Iterable[Tensor]:
        """Return the matrix whose product is added to the residual stream."""
        return [self.down.weight]

    def forward(self, x: Tensor) -> Tensor:
        return self.down(gelu(self.up(x)))

"""How large a decoder with a mixture of experts is, and how many operations a token costs.

Legend: L layers, N experts, T tokens of a window, d features, f hidden width of an expert, V vocabulary.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from torch import nn

from lightning_modules.dtop_p.moe import MoEFeedForward
from lightning_modules.networks.transformer import Decoder, DecoderBlock


class ParameterCounts(NamedTuple):
    """Numbers of parameters, embedding and head included.

    Attributes:
        total: all.
        active: without the experts that a token does not use, in the mean.
        embedding: of the embedding and the head.
        experts: of all experts.
    """

    total: int
    active: float
    embedding: int
    experts: int


class ForwardOperations(NamedTuple):
    """Floating-point operations of a forward pass, a token; an addition and a multiplication are two.

    Attributes:
        attention: four projections, and the products with the tokens before, in the mean over the places of a window.
        router: logits.
        experts: matrix products of the active experts, or of dense feed-forward layers.
        head: logits of the next token.
    """

    attention: float
    router: float
    experts: float
    head: float

    @property
    def total(self) -> float:
        """Their sum."""
        return sum(self)


def parameter_counts(decoder: Decoder, active: float | Sequence[float]) -> ParameterCounts:
    """Count parameters; works on the meta device.

    Args:
        decoder: the network.
        active: mean number of active experts, of all layers or of each.
    """
    total = _size(decoder)
    experts = [_size(layer.experts) for layer in decoder.modules() if isinstance(layer, MoEFeedForward)]
    asleep = sum(_size(layer.experts) * (1 - used / layer.router.num_experts) for layer, used in _mixtures(decoder, active))
    return ParameterCounts(total, total - asleep, _size(decoder.embedding) + _size(decoder.head), sum(experts))


def forward_operations(decoder: Decoder, active: float | Sequence[float], length: int) -> ForwardOperations:
    r"""Return the operations of a forward pass, a token.

    .. math::
        L \bigl( 2 \cdot 4 d^2 + 2 d (T + 1) \bigr) + 2 L d N + 6 d f \sum_l a_l + 2 d V

    for SwiGLU experts and as many heads of keys as of queries: a token attends to (T + 1) / 2 tokens in the mean. Norms, rotations,
    activations and the sorting of tokens are left out.

    Args:
        decoder: the network.
        active: mean number of active experts a, of all layers or of each.
        length: T.
    """
    attention = router = experts = 0.0
    for block in decoder.blocks:
        assert isinstance(block, DecoderBlock)
        attention += 2 * _size(block.attention) + 2 * block.attention.query.in_features * (length + 1)
        if not isinstance(block.feed_forward, MoEFeedForward):
            experts += 2 * _size(block.feed_forward)
    for layer, used in _mixtures(decoder, active):
        router += 2 * layer.router.weight.numel()
        experts += 2 * _size(layer.experts) * used / layer.router.num_experts
    return ForwardOperations(attention, router, experts, 2 * _size(decoder.head))


def _mixtures(decoder: Decoder, active: float | Sequence[float]) -> Iterator[tuple[MoEFeedForward, float]]:
    """Yield each mixture of experts with its number of active ones."""
    layers = [layer for layer in decoder.modules() if isinstance(layer, MoEFeedForward)]
    each = active if isinstance(active, Sequence) else [active] * len(layers)
    if len(each) != len(layers):
        raise ValueError(f"active experts of {len(each)} layers, the decoder has {len(layers)} mixtures: give each its own")
    yield from zip(layers, each, strict=True)


def _size(module: nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())

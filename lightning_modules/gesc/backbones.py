"""Baselines by name."""

from typing import Any, Literal, get_args

from torch import nn

from lightning_modules.gesc.baselines import FAGCN, GAT, GCN, MLP, GraphSAGE
from lightning_modules.gesc.gprgnn import GPRGNN
from lightning_modules.gesc.h2gcn import H2GCN
from lightning_modules.gesc.magnet import MagNet

Backbone = Literal["mlp", "gcn", "gat", "sage", "fagcn", "gprgnn", "h2gcn", "magnet"]

_NETWORKS: dict[str, type[nn.Module]] = {
    "mlp": MLP,
    "gcn": GCN,
    "gat": GAT,
    "sage": GraphSAGE,
    "fagcn": FAGCN,
    "gprgnn": GPRGNN,
    "h2gcn": H2GCN,
    "magnet": MagNet,
}


def build_backbone(name: Backbone, in_channels: int, out_channels: int, **options: Any) -> nn.Module:
    """Return the network of this name.

    Args:
        name: one of ``Backbone``.
        in_channels: features of a node.
        out_channels: classes.
        **options: further arguments of the network's class.

    Raises:
        ValueError: if the name is unknown, or the network takes no such option.
    """
    if name not in _NETWORKS:
        raise ValueError(f"backbone {name!r} is unknown: use one of {', '.join(get_args(Backbone))}")
    try:
        return _NETWORKS[name](in_channels, out_channels, **options)
    except TypeError as error:
        raise ValueError(f"backbone {name!r} does not take the options {options}: {error}") from error

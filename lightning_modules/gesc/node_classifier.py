"""The baselines of GESC as one LightningModule."""

from typing import Any, Literal

from torch import Tensor
from torch_geometric.data import Data

from lightning_modules.gesc.backbones import Backbone, build_backbone
from lightning_modules.gesc.node_classification import NodeClassification, real_and_imaginary_parts


class NodeClassifier(NodeClassification):
    """A baseline by name, with the trainer of GESC.

    Args:
        backbone: "mlp", "gcn", "gat", "sage", "fagcn", "gprgnn", "h2gcn" or "magnet".
        hidden: width.
        layers: layers, or rounds of aggregation.
        dropout: share of the features that are left out.
        complex_input: what a real network sees of complex features: "parts", the real and the imaginary parts beside each other, or
            their "modulus".
        magnetic_q: charge of the phases of "magnet".
        backbone_options: further arguments of the network's class, such as ``{"heads": 4}`` for "gat".
        **options: those of :class:`NodeClassification`.

    Raises:
        ValueError: if the backbone, an option of it, or ``complex_input`` is unknown.
    """

    def __init__(
        self,
        backbone: Backbone = "gcn",
        hidden: int = 64,
        layers: int = 2,
        dropout: float = 0.5,
        complex_input: Literal["parts", "modulus"] = "parts",
        magnetic_q: float = 0.25,
        backbone_options: dict[str, Any] | None = None,
        **options: Any,
    ) -> None:
        super().__init__(**options)
        if complex_input not in ("parts", "modulus"):
            raise ValueError(f"complex_input={complex_input!r} is unknown: use 'parts' or 'modulus'")
        self.complex_input = complex_input
        self.reads_direction = backbone == "magnet"
        width = 2 * self.num_features if self.complex_features and complex_input == "parts" else self.num_features
        chosen = {"hidden": hidden, "layers": layers, "dropout": dropout, **({"q": magnetic_q} if self.reads_direction else {})}
        self.network = build_backbone(backbone, width, self.num_classes, **chosen | (backbone_options or {}))

    def forward(self, batch: Data) -> Tensor:
        batch = self.in_precision(batch)
        directions = (batch.get("edge_direction"),) if self.reads_direction else ()
        return self.network(self._real_features(batch.x), batch.edge_index, *directions)

    def _real_features(self, x_NF: Tensor) -> Tensor:
        if not x_NF.is_complex():
            return x_NF
        return x_NF.abs() if self.complex_input == "modulus" else real_and_imaginary_parts(x_NF)

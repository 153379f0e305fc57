"""GESC as a LightningModule."""

import copy
from typing import Any, Literal

import torch
from torch import Tensor
from torch_geometric.data import Data

from lightning_modules.gesc.connection import ConnectionKind
from lightning_modules.gesc.consistency import Form, consistency
from lightning_modules.gesc.drop_edge import drop_edges
from lightning_modules.gesc.interference import Gate
from lightning_modules.gesc.network import GESC
from lightning_modules.gesc.node_classification import NodeClassification, real_and_imaginary_parts

_FULL_PRECISION = ("32-true", "64-true")


class GESCModule(NodeClassification):
    r"""The gauge-equivariant network with self-interference cancellation, trained to agree with itself.

    Two stochastic passes see a graph in each training step. The first is trained on the labels, and on all nodes towards its
    mixture with the second, which gives no gradient: the penalty is ``weight`` times ``consistency``.

    An argument of the network that is None has the preset's value. Complex features want a network that keeps their gauge: then the
    encoder has no bias, the readout is "modulus" and the phases are those of the data, unless said otherwise. With
    ``complex_input`` "parts" it takes them as twice as many real features, of which it knows no gauge.

    Args:
        preset: "paper" is the gauge-equivariant model of the paper's abstract, "official_code" the model of the official program,
            with its trivial connection and its normalisation; it also chooses the form of the consistency.
        hidden: complex width of the states.
        heads: attention heads, which are summed.
        layers: layers.
        sic: strength of the cancellation, one number or one a layer; further layers have the last.
        gamma: scale of the attention logits.
        attn_dropout: dropout of attention.
        dropout: dropout of features.
        classifier_dropout: dropout before the classifier.
        skip: weight of the encoder's output in every layer.
        gate: gate of a message by its alignment: "hard", "soft", "none" or "real".
        norm: "gauge", "split" or "none".
        connection: phases of the edges: "trivial", "magnetic", "learned" or "given".
        magnetic_q: charge of the magnetic phases.
        readout: "real_imag" or "modulus".
        jk: how the layers' states are joined: "concat" or "mean".
        bias: whether the encoder has one.
        impl: "fused" or "reference".
        complex_input: "gauge" keeps the gauge of complex features, "parts" reads their real and imaginary parts.
        consistency_weight: weight of the penalty; with 0 there is one pass.
        consistency_temperature: its temperature.
        consistency_form: "jensen_shannon" or "official_code", see ``consistency``.
        drop_edge: probability of a link to be left out of a training pass.
        warmup_epochs: epochs over which the loss rises linearly to its full weight.
        **options: those of :class:`NodeClassification`.

    Raises:
        ValueError: if the preset or ``complex_input`` is unknown, ``drop_edge`` is no probability, or the trainer's precision is
            below 32 bits.

    Source: GESC (arXiv 2511.16062) and its official program.
    """

    def __init__(
        self,
        preset: Literal["paper", "official_code"] = "paper",
        hidden: int | None = None,
        heads: int | None = None,
        layers: int | None = None,
        sic: float | list[float] | None = None,
        gamma: float | None = None,
        attn_dropout: float | None = None,
        dropout: float | None = None,
        classifier_dropout: float | None = None,
        skip: float | None = None,
        gate: Gate | None = None,
        norm: Literal["gauge", "split", "none"] | None = None,
        connection: ConnectionKind | None = None,
        magnetic_q: float | None = None,
        readout: Literal["real_imag", "modulus"] | None = None,
        jk: Literal["concat", "mean"] | None = None,
        bias: bool | None = None,
        impl: Literal["fused", "reference"] | None = None,
        complex_input: Literal["gauge", "parts"] = "gauge",
        consistency_weight: float = 0.1,
        consistency_temperature: float = 2.0,
        consistency_form: Form | None = None,
        drop_edge: float = 0.0,
        warmup_epochs: int = 50,
        **options: Any,
    ) -> None:
        super().__init__(warmup_epochs=warmup_epochs, **options)
        if preset not in ("paper", "official_code"):
            raise ValueError(f"preset={preset!r} is unknown: use 'paper' or 'official_code'")
        if not 0 <= drop_edge < 1:
            raise ValueError(f"drop_edge={drop_edge} must be in [0, 1)")
        if complex_input not in ("gauge", "parts"):
            raise ValueError(f"complex_input={complex_input!r} is unknown: use 'gauge' or 'parts'")
        wanted = {
            "hidden": hidden,
            "heads": heads,
            "layers": layers,
            "sic": tuple(sic) if isinstance(sic, list) else sic,
            "gamma": gamma,
            "attn_dropout": attn_dropout,
            "dropout": dropout,
            "classifier_dropout": classifier_dropout,
            "skip": skip,
            "gate": gate,
            "norm": norm,
            "connection": connection,
            "magnetic_q": magnetic_q,
            "readout": readout,
            "jk": jk,
            "bias": bias,
            "impl": impl,
        }
        keeps_gauge = self.complex_features and complex_input == "gauge"
        self.reads_parts = self.complex_features and not keeps_gauge
        needed = {"complex_input": True, "bias": False, "readout": "modulus", "connection": "given"} if keeps_gauge else {}
        overrides = needed | {name: value for name, value in wanted.items() if value is not None}
        if norm == "none":
            overrides["norm"] = None
        self.network = GESC.from_preset(preset, self.num_features * (1 + self.reads_parts), self.num_classes, **overrides)
        self.consistency_weight, self.consistency_temperature = consistency_weight, consistency_temperature
        self.consistency_form: Form = consistency_form or ("jensen_shannon" if preset == "paper" else "official_code")
        self.drop_edge = drop_edge

    def setup(self, stage: str) -> None:
        if self.trainer.precision not in _FULL_PRECISION:
            raise ValueError(f"precision={self.trainer.precision}: complex layers need trainer.precision 32-true or 64-true")

    def forward(self, batch: Data) -> Tensor:
        return self.network(self._features(batch))

    def training_pass(self, batch: Data) -> tuple[Tensor, Tensor | None]:
        """Return the logits of the first pass, and how far the second disagrees."""
        logits_NC = self(drop_edges(batch, self.drop_edge))
        if self.consistency_weight == 0:
            return logits_NC, None
        with torch.no_grad():
            other_NC = self(drop_edges(batch, self.drop_edge))
        distance = consistency(logits_NC, other_NC, self.consistency_temperature, self.consistency_form)
        return logits_NC, self.consistency_weight * distance

    def predict_step(self, batch: Data, batch_idx: int, dataloader_idx: int = 0) -> dict[str, Any]:
        """Return also the states after each layer, complex ``[N, d]``, as ``hidden``."""
        return {**super().predict_step(batch, batch_idx, dataloader_idx), "hidden": self.network.hidden(self._features(batch))}

    def diagnose(self, batch: Data) -> list[dict[str, Tensor]]:
        """Return what each layer does with the graph, see ``GESC.diagnose``."""
        return self.network.diagnose(self._features(batch))

    def _features(self, batch: Data) -> Data:
        """Return the graph as the network reads it."""
        batch = self.in_precision(batch)
        if self.reads_parts:
            batch = copy.copy(batch)
            batch.x = real_and_imaginary_parts(batch.x)
        return batch

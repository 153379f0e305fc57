"""GESC: complex encoder, gauge-equivariant layers with a skip to the input, readout.

Legend: N nodes, F input features, d hidden features, E edges, L layers, C classes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch_geometric.data import Data

from lightning_modules.gesc.complex_layers import ComplexLinear, as_complex, check_precision
from lightning_modules.gesc.connection import ConnectionKind, U1Connection
from lightning_modules.gesc.conv import GESCConv, Norm
from lightning_modules.gesc.features import drop_features
from lightning_modules.gesc.gauge import dirichlet_energy, self_parallel_fraction
from lightning_modules.gesc.interference import Gate, carried_product
from lightning_modules.gesc.sorted_edges import SortedEdges, sorted_edges

PRESETS: dict[str, dict[str, Any]] = {
    "paper": {"gate": "hard", "norm": "gauge", "connection": "learned"},
    "official_code": {"gate": "real", "norm": "split", "connection": "trivial"},
}


class GESC(nn.Module):
    r"""Node classifier on complex hidden states.

    .. math::
        h = h^0 = W_e\, \mathrm{dropout}(x) + b_e, \qquad
        h \leftarrow (1 - a)\, \mathrm{GESCConv}_l(h, \theta) + a\, \mathrm{stop}(h^0), \qquad
        z = \mathrm{jk}_l\, \rho(h_l), \qquad
        \hat y = \mathrm{Linear}(\mathrm{dropout}(\mathrm{LayerNorm}(z)))

    The readout ρ is the pair of real and imaginary parts, or the modulus, which makes the logits gauge-invariant.

    Args:
        in_channels: F.
        out_channels: C.
        hidden: d.
        heads: heads of each layer.
        layers: L; the last has no modReLU.
        sic: strength of the cancellation in each layer; a number is for all layers, the last of a list for the layers after it.
        gamma: inverse temperature of the attention.
        attn_dropout: dropout on the attention weights.
        dropout: dropout on the input.
        classifier_dropout: dropout before the classifier.
        skip: share a of the encoder's output, through which no gradient flows.
        gate: see :class:`GESCConv`.
        norm: see :class:`GESCConv`.
        connection: see :class:`U1Connection`.
        magnetic_q: charge of the magnetic connection.
        readout: ``real_imag`` or ``modulus``.
        jk: ``concat`` or ``mean`` of the layers' states.
        complex_input: x is complex, and every part must respect its gauge: no bias, readout ``modulus``, no learned connection.
        bias: the encoder has a bias.
        impl: see :class:`GESCConv`.

    Raises:
        ValueError: on options that do not fit together.

    Source: Choi, Choi, Kang, ICML 2026 (arXiv 2511.16062) and the authors' program.
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        hidden: int = 64,
        heads: int = 4,
        layers: int = 2,
        sic: float | Sequence[float] = (1.5, 0.0),
        gamma: float = 0.1,
        attn_dropout: float = 0.2,
        dropout: float = 0.5,
        classifier_dropout: float = 0.5,
        skip: float = 0.1,
        gate: Gate = "hard",
        norm: Norm | None = "gauge",
        connection: ConnectionKind = "learned",
        magnetic_q: float = 0.25,
        readout: Literal["real_imag", "modulus"] = "real_imag",
        jk: Literal["concat", "mean"] = "concat",
        complex_input: bool = False,
        bias: bool = True,
        impl: Literal["fused", "reference"] = "fused",
    ) -> None:
        super().__init__()
        if readout not in ("real_imag", "modulus"):
            raise ValueError(f"readout must be 'real_imag' or 'modulus', got {readout!r}")
        if jk not in ("concat", "mean"):
            raise ValueError(f"jk must be 'concat' or 'mean', got {jk!r}")
        if not 0 <= skip <= 1:
            raise ValueError(f"skip must lie in [0, 1], got {skip}")
        strengths = _per_layer(sic, layers)
        self.readout, self.jk, self.skip, self.dropout = readout, jk, skip, dropout
        self.connection = U1Connection(connection, in_channels, magnetic_q)
        self.encoder = ComplexLinear(in_channels, hidden, bias=bias)
        self.convs = nn.ModuleList(
            GESCConv(hidden, heads, strength, gamma, attn_dropout, gate, norm, act=layer < layers - 1, impl=impl)
            for layer, strength in enumerate(strengths)
        )
        width = hidden * (2 if readout == "real_imag" else 1) * (layers if jk == "concat" else 1)
        self.classifier = nn.Sequential(nn.LayerNorm(width), nn.Dropout(classifier_dropout), nn.Linear(width, out_channels))
        if complex_input:
            self._check_complex_input()

    @classmethod
    def from_preset(cls, name: str, in_channels: int, out_channels: int, **overrides: Any) -> GESC:
        """Build the gauge-equivariant model of the paper (``paper``) or the one of the authors' program (``official_code``).

        Args:
            name: the preset.
            in_channels: F.
            out_channels: C.
            overrides: arguments of the constructor that replace those of the preset.

        Raises:
            ValueError: on an unknown preset.
        """
        if name not in PRESETS:
            raise ValueError(f"preset must be one of {', '.join(PRESETS)}, got {name!r}")
        return cls(in_channels, out_channels, **{**PRESETS[name], **overrides})

    def forward(self, data: Data) -> Tensor:
        """Return the logits, ``[N, C]``.

        Args:
            data: ``x`` ``[N, F]``, dense or sparse CSR, ``edge_index`` ``[2, E]`` with one self-loop for each node, and as the
                connection needs it ``edge_phase`` or ``edge_direction``, ``[E]``.
        """
        return self.classifier(self.read(self.hidden(data)))

    def hidden(self, data: Data) -> list[Tensor]:
        """Return the states after each layer, L times ``[N, d]`` complex."""
        h_Nd, phase_E, edges = self._start(data)
        return self._layers(h_Nd, data.edge_index, phase_E, edges)

    def read(self, states: list[Tensor]) -> Tensor:
        """Return the real features that the classifier sees."""
        h_Nd = torch.cat(states, dim=1) if self.jk == "concat" else torch.stack(states).mean(0)
        return h_Nd.abs() if self.readout == "modulus" else torch.view_as_real(h_Nd).flatten(1)

    @torch.no_grad()
    def diagnose(self, data: Data) -> list[dict[str, Tensor]]:
        """Measure each layer on ``data``, in the present mode (call ``eval()`` to measure without dropout).

        Returns:
            For each layer, over the edges that are no self-loops: ``parallel_fraction`` (share of a message along its receiver,
            mean over heads), ``alignment`` (c), ``angle`` (from a state to its neighbour's after transport, in [-π, π]) and
            ``phase`` (θ), each ``[E']``; and the scalars ``eta``, ``gate_share`` (mean k over these edges) and
            ``dirichlet_energy`` of the layer's output over all edges.
        """
        h_Nd, phase_E, edges = self._start(data)
        inputs = [h_Nd, *(states := self._layers(h_Nd, data.edge_index, phase_E, edges))]
        between = data.edge_index[0] != data.edge_index[1]
        sorted_phase_E = None if phase_E is None else edges.sort(phase_E)
        phase = h_Nd.real.new_zeros(len(between)) if phase_E is None else phase_E
        convs = [conv for conv in self.convs if isinstance(conv, GESCConv)]
        products = [edges.unsort(carried_product(h_in_Nd, edges, sorted_phase_E))[between] for h_in_Nd in inputs[:-1]]
        return [
            {
                "parallel_fraction": self_parallel_fraction(h_in_Nd, as_complex(conv.weight), data.edge_index)[between],
                "alignment": product.real,
                "angle": product.angle(),
                "phase": phase[between],
                "eta": conv.eta.detach(),
                "gate_share": edges.unsort(conv.edge_gate(h_in_Nd, edges, sorted_phase_E))[between].mean(),
                "dirichlet_energy": dirichlet_energy(h_out_Nd, data.edge_index, phase_E),
            }
            for conv, h_in_Nd, h_out_Nd, product in zip(convs, inputs[:-1], states, products, strict=True)
        ]

    def _start(self, data: Data) -> tuple[Tensor, Tensor | None, SortedEdges]:
        """Return the encoded input, the phases (None for the trivial connection) and the sorted edges."""
        x_NF = data.x
        check_precision(x_NF, "x")
        check_precision(self.encoder.weight, "the weight")
        if x_NF.is_complex():
            self._check_complex_input()
        phase_E = None
        if self.connection.kind != "trivial":
            given, direction = getattr(data, "edge_phase", None), getattr(data, "edge_direction", None)
            phase_E = self.connection(x_NF, data.edge_index, given, direction)
        h_Nd = self.encoder(drop_features(x_NF, self.dropout, self.training))
        return h_Nd, phase_E, sorted_edges(data.edge_index, len(x_NF))

    def _layers(self, h_Nd: Tensor, edge_index: Tensor, phase_E: Tensor | None, edges: SortedEdges) -> list[Tensor]:
        start_Nd, states = h_Nd.detach(), []
        for conv in self.convs:
            h_Nd = (1 - self.skip) * conv(h_Nd, edge_index, phase_E, edges=edges) + self.skip * start_Nd
            states.append(h_Nd)
        return states

    def _check_complex_input(self) -> None:
        """Refuse parts that do not respect the gauge of a complex input."""
        if self.encoder.bias is not None or self.readout == "real_imag":
            raise ValueError("complex x with this model would break gauge equivariance; set bias=False, readout='modulus'")
        if self.connection.kind == "learned":
            raise ValueError(
                "connection='learned' reads the input, which must be real to be gauge-invariant, but x is complex; "
                "use connection='given' or 'trivial'"
            )


def _per_layer(sic: float | Sequence[float], layers: int) -> list[float]:
    """Return the strength of the cancellation in each layer."""
    if layers < 1:
        raise ValueError(f"layers must be at least 1, got {layers}")
    strengths = list(sic) if isinstance(sic, Sequence) else [sic]
    if not strengths:
        raise ValueError("sic must be a number or a list of at least one, got an empty list")
    return (strengths + [strengths[-1]] * layers)[:layers]

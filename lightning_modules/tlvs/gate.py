"""How strongly to steer at a step, predicted from the hidden state of one layer in the same pass."""

from typing import Literal, get_args

import torch
from torch import Tensor, nn

GateKind = Literal["none", "sens", "risk", "both"]
SMALLEST_SENSITIVITY = 1e-4
LARGEST_RISK = 1.5


def ridge(x_Sd: Tensor, y_S: Tensor, penalty: float = 1.0) -> Tensor:
    r"""Return the weights w of :math:`[x; 1]` that minimise :math:`\lVert [x; 1] w - y \rVert^2 + \lambda \lVert w \rVert^2`.

    The bias is penalised as all other weights are.

    Args:
        x_Sd: features, ``[S, d]``.
        y_S: targets, ``[S]``.
        penalty: λ.

    Returns:
        w, float64 ``[d + 1]``; the bias is last.
    """
    x_Sf = with_one(x_Sd.double())
    gram_ff = x_Sf.T @ x_Sf + penalty * torch.eye(x_Sf.shape[1], dtype=torch.float64, device=x_Sf.device)
    return torch.linalg.solve(gram_ff, x_Sf.T @ y_S.double())


def with_one(x_d: Tensor) -> Tensor:
    """Append a 1 to each row, ``[..., d + 1]``."""
    return torch.cat([x_d, torch.ones_like(x_d[..., :1])], dim=-1)


class StepGate(nn.Module):
    r"""Strength :math:`g_t = g_\text{sens} \, g_\text{risk}` of the steering at each step.

    .. math::
        z_t = w_s^\top [h_t; 1], \quad g_\text{sens} = \sigma\Bigl(\frac{z_t - \theta}{\tau}\Bigr), \qquad
        \hat H_t = w_H^\top [h_t; 1], \quad g_\text{risk} = \operatorname{clip}(\hat H_t / H_0,\; 0,\; 1.5)

    z predicts the logarithm of the visual sensitivity, Ĥ the entropy of the next token; both are ridge regressions on the hidden
    state h of the gate layer before it is steered. ``sens`` has the first factor alone, ``risk`` the second, ``none`` is 1.

    Args:
        width: d.
        temperature: τ.
        reference_entropy: H₀, nats.

    Raises:
        ValueError: if temperature or reference entropy are not positive.

    Source: a reading of TLVS's abstract (arXiv 2606.07647).
    """

    sensitivity_probe: Tensor
    entropy_probe: Tensor
    threshold: Tensor

    def __init__(self, width: int, temperature: float = 0.5, reference_entropy: float = 0.5) -> None:
        super().__init__()
        for name, value in (("temperature", temperature), ("reference_entropy", reference_entropy)):
            if value <= 0:
                raise ValueError(f"{name}={value} of the gate must be positive")
        self.temperature, self.reference_entropy = temperature, reference_entropy
        self.register_buffer("sensitivity_probe", torch.zeros(width + 1))
        self.register_buffer("entropy_probe", torch.zeros(width + 1))
        self.register_buffer("threshold", torch.zeros(()))

    @torch.no_grad()
    def fit(self, h_Sd: Tensor, sensitivity_S: Tensor, entropy_S: Tensor, penalty: float = 1.0) -> None:
        """Fit both probes; θ becomes the median of the logarithm of the sensitivity.

        Args:
            h_Sd: states of the gate layer, ``[S, d]``.
            sensitivity_S: s, ``[S]``.
            entropy_S: entropy of the next token with the image, nats, ``[S]``.
            penalty: of the ridge regression.
        """
        log_s = log_sensitivity(sensitivity_S)
        self.sensitivity_probe.copy_(ridge(h_Sd, log_s, penalty))
        self.entropy_probe.copy_(ridge(h_Sd, entropy_S, penalty))
        self.threshold.copy_(log_s.median())

    def forward(self, h_d: Tensor, kind: GateKind = "both") -> Tensor:
        """Return g as it is predicted from the states of the gate layer, float32 ``[...]``.

        Raises:
            ValueError: if the kind is unknown.
        """
        return self.strength(self.predicted_log_sensitivity(h_d), self.predicted_entropy(h_d), kind)

    def strength(self, log_sensitivity: Tensor, entropy: Tensor, kind: GateKind = "both") -> Tensor:
        """Return g from z ``[...]`` and the entropy ``[...]`` themselves.

        Raises:
            ValueError: if the kind is unknown.
        """
        if kind not in get_args(GateKind):
            raise ValueError(f"gate={kind!r} is unknown: use one of {', '.join(get_args(GateKind))}")
        factors = []
        if kind in ("sens", "both"):
            factors.append(((log_sensitivity - self.threshold) / self.temperature).sigmoid())
        if kind in ("risk", "both"):
            factors.append((entropy / self.reference_entropy).clamp(0, LARGEST_RISK))
        return torch.stack(factors).prod(dim=0) if factors else torch.ones_like(entropy)

    def predicted_log_sensitivity(self, h_d: Tensor) -> Tensor:
        """Return z, ``[...]``."""
        return with_one(h_d.float()) @ self.sensitivity_probe

    def predicted_entropy(self, h_d: Tensor) -> Tensor:
        """Return Ĥ, nats, ``[...]``."""
        return with_one(h_d.float()) @ self.entropy_probe


def log_sensitivity(sensitivity_S: Tensor) -> Tensor:
    """Return log(s + 10⁻⁴), which a step without any influence of the image leaves finite."""
    return (sensitivity_S.clamp_min(0) + SMALLEST_SENSITIVITY).log()

"""From the output of a network to its guess of the data, for networks that predict the noise, the velocity or EDM's target.

Plain torch. Legend: B samples; a sample is ``[C, H, W]`` or ``[d]``. Noise levels are those of EDM: a noisy sample is
:math:`y + \\sigma n` with data y and standard normal noise n.
"""

from typing import Literal, get_args

import torch
from torch import Tensor, nn

Prediction = Literal["edm", "eps", "v"]


class Preconditioned(nn.Module):
    r"""A network F that sees inputs of unit deviation, as a data prediction D.

    .. math::
        D(x, \sigma) = c_\text{skip} \, x + c_\text{out} \, F\bigl(c_\text{in} \, x, \tfrac14 \ln \sigma\bigr)

    ========== ========================== ================================== ===========================
    prediction :math:`c_\text{skip}`      :math:`c_\text{out}`               :math:`c_\text{in}`
    ========== ========================== ================================== ===========================
    edm        :math:`\sigma_d^2 / l^2`   :math:`\sigma \sigma_d / l`        :math:`1 / l`
    eps        1                          :math:`-\sigma`                    :math:`1/\sqrt{1+\sigma^2}`
    v          :math:`1/(1+\sigma^2)`     :math:`-\sigma/\sqrt{1+\sigma^2}`  :math:`1/\sqrt{1+\sigma^2}`
    ========== ========================== ================================== ===========================

    with :math:`l^2 = \sigma^2 + \sigma_d^2`.
    With ``eps`` the network predicts the noise n and with ``v`` the velocity :math:`\alpha n - s y` of the variance-preserving
    sample :math:`\alpha y + s n`, :math:`\alpha = 1/\sqrt{1+\sigma^2}`, which is what it sees.

    Args:
        network: maps ``[B, ...]`` and :math:`\tfrac14 \ln \sigma`, ``[B]``, to ``[B, ...]``.
        prediction: what the network predicts.
        sigma_data: standard deviation :math:`\sigma_d` of the data, for ``edm``.

    Raises:
        ValueError: if the prediction is unknown or ``sigma_data`` is not positive.

    Source: EDM (arXiv 2206.00364), section 5 and table 1; v: Salimans and Ho 2022 (arXiv 2202.00512), appendix D.
    """

    def __init__(self, network: nn.Module, prediction: Prediction = "edm", sigma_data: float = 1.0) -> None:
        super().__init__()
        if prediction not in get_args(Prediction):
            raise ValueError(f"prediction={prediction!r} is unknown, use {', '.join(get_args(Prediction))}")
        if sigma_data <= 0:
            raise ValueError(f"sigma_data={sigma_data} must be positive: use the standard deviation of the data")
        self.network, self.prediction, self.sigma_data = network, prediction, sigma_data

    def coefficients(self, sigma_B: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return :math:`c_\\text{skip}, c_\\text{out}, c_\\text{in}`, each of the shape of ``sigma_B``."""
        if self.prediction == "edm":
            length = (sigma_B.square() + self.sigma_data**2).sqrt()
            return (self.sigma_data / length).square(), sigma_B * self.sigma_data / length, 1 / length
        length = (sigma_B.square() + 1).sqrt()
        if self.prediction == "v":
            return length**-2, -sigma_B / length, 1 / length
        return torch.ones_like(sigma_B), -sigma_B, 1 / length

    def forward(self, x: Tensor, sigma_B: Tensor) -> Tensor:
        """Return the guess of the data, of the shape and type of x.

        Args:
            x: noisy samples :math:`y + \\sigma n`, ``[B, ...]``.
            sigma_B: their noise levels, ``[B]``.
        """
        skip, out, scale = (each.view(-1, *[1] * (x.ndim - 1)) for each in self.coefficients(sigma_B))
        return skip * x + out * self.network(scale * x, sigma_B.log() / 4).to(x.dtype)

    def loss(self, clean: Tensor, noise: Tensor, sigma_B: Tensor) -> Tensor:
        r"""Return the weighted square error of each sample, ``[B]``: the plain one of what the network predicts.

        .. math::
            \ell = c_\text{out}^{-2} \, \tfrac1d \lVert D(y + \sigma n, \sigma) - y \rVert^2

        Args:
            clean: data y, ``[B, ...]``.
            noise: n, of the same shape.
            sigma_B: noise levels, ``[B]``.
        """
        denoised = self(clean + sigma_B.view(-1, *[1] * (clean.ndim - 1)) * noise, sigma_B)
        return (denoised - clean).float().square().flatten(1).mean(dim=1) / self.coefficients(sigma_B)[1].square()

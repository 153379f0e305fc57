"""Images in the middle of a diffusion, where they say next to nothing."""

import torch
from torch import Tensor

STEPS = 1000


def diffused(pixels: Tensor, step: int = 500, generator: torch.Generator | None = None) -> Tensor:
    r"""Return :math:`\sqrt{\bar\alpha_t}\, x + \sqrt{1 - \bar\alpha_t}\, \epsilon`, of the shape of ``pixels``.

    The noise of a step is :math:`\beta = 10^{-5} + (5 \cdot 10^{-3} - 10^{-5})\, \sigma(s)`, s from -6 to 6 over 1000 steps.

    Args:
        pixels: x.
        step: t, from 0 to 999.
        generator: source of the noise; None has its own with the seed 0, so that a calibration repeats.

    Source: the program of Leng et al. 2024 (arXiv 2311.16922).
    """
    if generator is None:
        generator = torch.Generator(pixels.device).manual_seed(0)
    beta = torch.linspace(-6, 6, STEPS, dtype=torch.float64).sigmoid() * (5e-3 - 1e-5) + 1e-5
    kept = (1 - beta).cumprod(dim=0)[step].item()
    noise = torch.randn(pixels.shape, generator=generator, device=pixels.device, dtype=torch.float32).to(pixels.dtype)
    return kept**0.5 * pixels + (1 - kept) ** 0.5 * noise

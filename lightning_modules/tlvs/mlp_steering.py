"""Earlier steering, on what the feed-forward parts return: VISTA's vector of an image, VTI's direction of the text.

Legend: L decoder layers, B batch, d width.
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor
from torch.nn.functional import cosine_similarity, normalize

from lightning_modules.tlvs.adapter import Batch, NullMode, VLMAdapter, captured
from lightning_modules.tlvs.response_edits import ResponsePositions, response_edits

VTI_SCALE = 0.1


@torch.no_grad()
def vista_vectors(adapter: VLMAdapter, prompts: Batch, null_mode: NullMode = "drop") -> Tensor:
    """Return what the image changes at the last position of a prompt in each layer, ``[L, B, d]``.

    Source: Li et al. 2025 (arXiv 2502.03628).
    """
    return last_states(adapter, prompts) - last_states(adapter, adapter.without_image(prompts, null_mode))


@contextmanager
def vista(adapter: VLMAdapter, vectors_LBd: Tensor, weight: float = 0.1) -> Iterator[ResponsePositions]:
    r"""Within the context, add each image's vector v to what the feed-forward parts return, x, and keep the norm.

    .. math:: \hat x + \lambda (1 + \max(0, \cos(x, -v)))\, \hat v, \quad \text{rescaled to } \lVert x \rVert

    Args:
        adapter: the model.
        vectors_LBd: v, one an image; beams or copies of an image follow each other.
        weight: λ.
    """

    def edit(layer: int, x_Bnd: Tensor) -> Tensor:
        vector_B1d = vectors_LBd[layer].repeat_interleave(len(x_Bnd) // vectors_LBd.shape[1], dim=0).unsqueeze(1).float()
        opposed_Bn1 = cosine_similarity(x_Bnd.float(), -vector_B1d, dim=-1).clamp_min(0).unsqueeze(-1)
        return _turned(x_Bnd, weight * (1 + opposed_Bn1) * normalize(vector_B1d, dim=-1))

    with response_edits(adapter.model, dict(enumerate(adapter.mlp_layers())), edit) as positions:
        yield positions


@torch.no_grad()
def vti_directions(adapter: VLMAdapter, faithful: Iterable[Batch], hallucinated: Iterable[Batch]) -> Tensor:
    r"""Return the direction from captions with wrong objects to those without, ``[L, d]``.

    The differences of the last states of all layers, joined, of each pair: their first principal component, scaled back to
    themselves on average, plus their mean.

    Args:
        adapter: the model.
        faithful: images with right captions.
        hallucinated: the same images with captions that name objects which are not there.

    Source: Liu et al. 2024 (arXiv 2410.15778); its directions of the vision encoder are left out.
    """
    difference_LSd = torch.cat(
        [last_states(adapter, right) - last_states(adapter, wrong) for right, wrong in zip(faithful, hallucinated, strict=True)],
        dim=1,
    )
    joined_SD = difference_LSd.transpose(0, 1).flatten(1).double()
    mean_D = joined_SD.mean(dim=0)
    component_D = torch.linalg.svd(joined_SD - mean_D, full_matrices=False).Vh[0]
    component_D = component_D * torch.where(component_D @ mean_D < 0, -1.0, 1.0)
    return (component_D + mean_D).view(len(difference_LSd), -1).float()


@contextmanager
def vti(adapter: VLMAdapter, directions_Ld: Tensor, alpha: float = 0.8) -> Iterator[ResponsePositions]:
    r"""Within the context, add :math:`0.1\, \alpha\, \hat v` to the normalised output of each feed-forward part and keep the norm.

    Args:
        adapter: the model.
        directions_Ld: v of each layer.
        alpha: α.
    """

    def edit(layer: int, x_Bnd: Tensor) -> Tensor:
        return _turned(x_Bnd, VTI_SCALE * alpha * normalize(directions_Ld[layer].float(), dim=-1))

    with response_edits(adapter.model, dict(enumerate(adapter.mlp_layers())), edit) as positions:
        yield positions


def last_states(adapter: VLMAdapter, batch: Batch) -> Tensor:
    """Return the states at the last position that predicts a token of the response, or else the last position, ``[L, B, d]``."""
    with captured(adapter.decoder_layers()) as states:
        adapter.logits(batch)
    mask_BT = adapter.response_mask(batch)
    text = mask_BT.shape[1]
    places_T = torch.arange(text, device=mask_BT.device)
    last_B = torch.where(mask_BT.any(dim=1), (mask_BT * places_T).amax(dim=1), text - 1)
    rows_B = torch.arange(len(mask_BT), device=mask_BT.device)
    return torch.stack([state[:, -text:][rows_B, last_B] for state in states]).float()


def _turned(x_Bnd: Tensor, step_Bnd: Tensor) -> Tensor:
    """Return x̂ plus a step, with the norm and the precision of x."""
    state_Bnd = x_Bnd.float()
    return (normalize(normalize(state_Bnd, dim=-1) + step_Bnd, dim=-1) * state_Bnd.norm(dim=-1, keepdim=True)).to(x_Bnd.dtype)

"""Agents on a picture: a regular grid of square patches, each seen by one agent.

Legend: B batch, N agents, H and W pixels, p patch side, C channels.
"""

import warnings
from functools import cached_property, lru_cache

import torch
from torch import Tensor
from torch.nn import functional

from lightning_modules.sheaf_admm.graph import AgentGraph, grid_on


class PatchGrid:
    """Patches of one picture size with centres at ``patch // 2, patch // 2 + stride, ...`` in either direction, row by row.

    Patches may stick out at the lower and right border.

    Args:
        height, width: pixels of the picture.
        patch: side of a patch.
        stride: pixels between neighbouring centres.

    Raises:
        ValueError: if no patch fits, or an even patch, which has no centre, does not tile the picture.

    Source: Sheaf-ADMM (arXiv 2605.31005), section 4 and its released configuration.
    """

    def __init__(self, height: int, width: int, patch: int, stride: int) -> None:
        if stride < 1 or patch < 1 or patch > min(height, width):
            raise ValueError(f"patches of {patch} px at stride {stride} do not fit into a picture of {height}x{width} px")
        if patch % 2 == 0 and patch != stride:
            raise ValueError(f"an even patch has no centre: use an odd patch, or stride={patch} to tile, not {patch=} {stride=}")
        self.height, self.width, self.patch, self.stride = height, width, patch, stride
        self.rows, self.columns = (len(range(patch // 2, side, stride)) for side in (height, width))
        unseen = int((self.coverage == 0).sum())
        if unseen:
            message = f"patches of {patch} px at stride {stride} leave {unseen} of {height * width} pixels unseen"
            warnings.warn(message, stacklevel=2)

    @property
    def num_agents(self) -> int:
        return self.rows * self.columns

    def graph(self, device: torch.device, connectivity: int = 8) -> AgentGraph:
        """Return the graph of neighbouring patches."""
        return grid_on(device, self.rows, self.columns, connectivity)

    def cut(self, picture_BHW: Tensor, outside: float) -> Tensor:
        """Cut pictures into patches ``[N, B, p * p]``; pixels outside of the picture have the value ``outside``."""
        low, right = (max(end - side, 0) for end, side in zip(self._ends, (self.height, self.width), strict=True))
        padded = functional.pad(picture_BHW, (0, right, 0, low), value=outside)
        patches = padded.unfold(1, self.patch, self.stride).unfold(2, self.patch, self.stride)
        return patches[:, : self.rows, : self.columns].flatten(3).flatten(1, 2).transpose(0, 1)

    def stitch(self, patches_NBpC: Tensor) -> Tensor:
        """Return pictures ``[B, H, W, C]`` whose pixels are means over the patches that show them, 0 where none does."""
        columns = patches_NBpC.permute(1, 3, 2, 0).flatten(1, 2)  # [B, C * p * p, N]
        total_BCHW = self._sums(columns)
        return (total_BCHW / self.coverage.to(total_BCHW).clamp_min(1)).permute(0, 2, 3, 1)

    @cached_property
    def coverage(self) -> Tensor:
        """Number of patches that show each pixel, ``[H, W]``."""
        return self._sums(torch.ones(1, self.patch**2, self.num_agents))[0, 0]

    def _sums(self, columns: Tensor) -> Tensor:
        """Add overlapping patches ``[B, C * p * p, N]`` up to pictures ``[B, C, H, W]``."""
        total_BCHW = functional.fold(columns, self._ends, self.patch, stride=self.stride)
        low, right = (side - end for side, end in zip((self.height, self.width), self._ends, strict=True))
        return functional.pad(total_BCHW, (0, right, 0, low))  # a negative number cuts off what sticks out

    @property
    def _ends(self) -> tuple[int, int]:
        """Rows and columns up to the last patch's end."""
        return (self.rows - 1) * self.stride + self.patch, (self.columns - 1) * self.stride + self.patch


@lru_cache(maxsize=64)
def patch_grid(height: int, width: int, patch: int, stride: int) -> PatchGrid:
    """Return the grid of patches of a picture size; the same object, and one warning, for the same arguments."""
    return PatchGrid(height, width, patch, stride)

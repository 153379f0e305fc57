"""What every network does first with the features of its nodes, dense or sparse: leave some out, and map them linearly.

Legend: N nodes, F features, d output features.
"""

from __future__ import annotations

from typing import cast

import torch
from torch import Tensor, nn
from torch.nn import functional

from lightning_modules.gesc.sparse_product import sparse_product, with_values


def drop_features(x_NF: Tensor, share: float, training: bool) -> Tensor:
    """Set each entry to 0 with probability ``share`` and divide the others by ``1 - share``, while training.

    Complex entries are dropped as a whole. Of a sparse matrix only the stored entries are drawn, which gives the same
    distribution, as a 0 stays a 0 in any case; dropped entries remain stored.

    Args:
        x_NF: features, or hidden states; real (dense or sparse CSR) or complex (dense).
        share: probability to be left out.
        training: without it the features stay as they are.

    Raises:
        ValueError: if x has another layout, or is sparse and complex.
    """
    check_layout(x_NF)
    if not training or share == 0:
        return x_NF
    if x_NF.layout == torch.sparse_csr:
        return with_values(x_NF, functional.dropout(x_NF.values(), share))
    if x_NF.is_complex():
        return x_NF * functional.dropout(torch.ones_like(x_NF.real), share)
    return functional.dropout(x_NF, share)


def feature_product(x_NF: Tensor, matrix_Fd: Tensor) -> Tensor:
    """Multiply features, dense or sparse CSR, by a dense matrix, ``[N, d]``.

    Raises:
        ValueError: if x has another layout, or is sparse and complex.
    """
    check_layout(x_NF)
    return x_NF @ matrix_Fd if x_NF.layout == torch.strided else sparse_product(x_NF, matrix_Fd)


def project(x_NF: Tensor, linear: nn.Module) -> Tensor:
    """Apply a linear layer, with ``weight`` ``[d, F]`` and ``bias`` ``[d]`` or None, to features, dense or sparse CSR.

    Raises:
        ValueError: if x has another layout, or is sparse and complex.
    """
    if x_NF.layout == torch.strided:
        return linear(x_NF)
    product_Nd = feature_product(x_NF, cast(Tensor, linear.weight).t())
    return product_Nd if linear.bias is None else product_Nd + cast(Tensor, linear.bias)


def check_layout(x_NF: Tensor) -> None:
    """Refuse features that are neither dense nor sparse by rows.

    Raises:
        ValueError: if the layout is not strided or CSR, or x is sparse and complex.
    """
    if x_NF.layout == torch.strided:
        return
    if x_NF.layout != torch.sparse_csr:
        raise ValueError(f"features must be dense or sparse CSR, x is {x_NF.layout}: use x.to_sparse_csr()")
    if x_NF.is_complex():
        raise ValueError(f"sparse features must be real, x is {x_NF.dtype}: use x.to_dense()")

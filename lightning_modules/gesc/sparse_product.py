"""Products of a constant sparse matrix with a dense one, whose backward pass need not sort the matrix anew.

Legend: R rows and C columns of the matrix, E stored entries, D columns of the dense matrix.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.utils.weak import WeakTensorKeyDictionary

from lightning_modules.gesc.sorted_edges import starts

warnings.filterwarnings("ignore", message="Sparse CSR tensor support is in beta state")

_TRANSPOSED = WeakTensorKeyDictionary()


@dataclass
class _Transposed:
    """The transpose: its rows begin at ``start``, its entry e is the entry ``order[e]`` of the matrix."""

    start: Tensor
    column: Tensor
    order: Tensor
    values: Tensor | None = None


def sparse_product(matrix_RC: Tensor, dense_CD: Tensor) -> Tensor:
    """Return the product, ``[R, D]``; gradients flow into the dense factor.

    The transpose, which the backward pass needs, is remembered for as long as the matrix lives.

    Args:
        matrix_RC: sparse CSR, without gradient, never written to.
        dense_CD: the dense factor.
    """
    return _SparseProduct.apply(matrix_RC, dense_CD)


def with_values(matrix_RC: Tensor, values_E: Tensor) -> Tensor:
    """Return a matrix of the same pattern with other values; what is remembered of the pattern serves both."""
    matrix = torch.sparse_csr_tensor(
        matrix_RC.crow_indices(), matrix_RC.col_indices(), values_E, matrix_RC.shape, check_invariants=False
    )
    if torch.is_grad_enabled():
        _TRANSPOSED[matrix] = replace(_transposed(matrix_RC), values=None)
    return matrix


def weighted_sum(weight_E: Tensor, dense_CD: Tensor, start: Tensor, column_E: Tensor) -> Tensor:
    """Multiply the sparse real matrix whose rows begin at ``start``, ``[R + 1]``, by a dense one."""
    shape = (len(start) - 1, len(dense_CD))
    matrix = torch.sparse_csr_tensor(start, column_E, weight_E.contiguous(), shape, check_invariants=False)
    return torch.sparse.mm(matrix, dense_CD, "sum") if dense_CD.device.type == "cpu" else matrix @ dense_CD


class _SparseProduct(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, matrix_RC: Tensor, dense_CD: Tensor) -> Tensor:
        ctx.matrix = matrix_RC
        return weighted_sum(matrix_RC.values(), dense_CD.contiguous(), matrix_RC.crow_indices(), matrix_RC.col_indices())

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_RD: Tensor) -> tuple[None, Tensor]:
        transposed = _transposed(ctx.matrix)
        if transposed.values is None:
            transposed.values = ctx.matrix.values().index_select(0, transposed.order)
        return None, weighted_sum(transposed.values, grad_RD.contiguous(), transposed.start, transposed.column)


def _transposed(matrix_RC: Tensor) -> _Transposed:
    known = _TRANSPOSED.get(matrix_RC)
    if known is None:
        column_E, per_row_R = matrix_RC.col_indices(), matrix_RC.crow_indices().diff()
        order = torch.argsort(column_E, stable=True)
        row_E = torch.arange(len(per_row_R), device=column_E.device).repeat_interleave(per_row_R, output_size=len(column_E))
        known = _TRANSPOSED[matrix_RC] = _Transposed(starts(column_E[order], matrix_RC.shape[1]), row_E[order], order)
    return known

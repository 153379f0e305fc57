import gc

import pytest
import torch

from lightning_modules.gesc import sparse_product as module
from lightning_modules.gesc.sparse_product import sparse_product, weighted_sum, with_values


def matrix(seed: int = 0) -> torch.Tensor:
    """5 x 8, with an empty row and an empty column."""
    g = torch.Generator().manual_seed(seed)
    dense = torch.randn(5, 8, generator=g, dtype=torch.float64) * (torch.rand(5, 8, generator=g) < 0.5)
    dense[2], dense[:, 3] = 0, 0
    return dense


@pytest.fixture
def dense() -> torch.Tensor:
    return torch.randn(8, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(1)).requires_grad_()


def test_product_and_gradient(dense: torch.Tensor):
    A = matrix()
    assert torch.allclose(sparse_product(A.to_sparse_csr(), dense), A @ dense)
    assert torch.autograd.gradcheck(lambda z: sparse_product(A.to_sparse_csr(), z), dense)
    assert torch.autograd.gradcheck(lambda z: sparse_product(A.to_sparse_csr(), z.t()), dense.detach().t().clone().requires_grad_())


def test_the_pattern_is_sorted_once(dense: torch.Tensor, monkeypatch: pytest.MonkeyPatch):
    sorts: list[int] = []
    argsort = torch.argsort
    monkeypatch.setattr(module.torch, "argsort", lambda *a, **k: sorts.append(1) or argsort(*a, **k))
    A = matrix()
    rows = A.to_sparse_csr()
    for step in range(3):
        other = with_values(rows, rows.values() * step)
        for given, factor in ((rows, 1), (other, step)):
            (gradient,) = torch.autograd.grad(sparse_product(given, dense).sum(), dense)
            assert torch.allclose(gradient, factor * A.t() @ torch.ones(5, 3, dtype=torch.float64))
    assert len(sorts) == 1
    with torch.no_grad():
        with_values(matrix(1).to_sparse_csr(), torch.ones(int((matrix(1) != 0).sum()), dtype=torch.float64))
    assert len(sorts) == 1, "no gradient, no sort"


def test_it_is_forgotten_with_the_matrix(dense: torch.Tensor):
    gc.collect()
    before = len(module._TRANSPOSED)
    rows = matrix().to_sparse_csr()
    other = with_values(rows, rows.values())
    sparse_product(other, dense).sum().backward()
    assert len(module._TRANSPOSED) == before + 2
    del rows, other
    gc.collect()
    assert len(module._TRANSPOSED) == before


def test_weighted_sum_of_a_rectangle():
    rows = matrix().to_sparse_csr()
    z = torch.ones(8, 2, dtype=torch.float64)
    assert torch.allclose(weighted_sum(rows.values(), z, rows.crow_indices(), rows.col_indices()), matrix() @ z)


def test_deterministic_algorithms_suffice(dense: torch.Tensor):
    torch.use_deterministic_algorithms(True)
    try:
        sparse_product(matrix().to_sparse_csr(), dense).sum().backward()
    finally:
        torch.use_deterministic_algorithms(False)
    assert dense.grad is not None

import torch

from benchmarks.calculations.kkt_convergence import EDGE_DIM, METRIC, kkt_errors, kkt_point, random_chain


def test_kkt_point_is_feasible_and_stationary():
    generator = torch.Generator().manual_seed(3)
    laplacian = random_chain(generator)
    Q = torch.rand(5, 1, 4, generator=generator, dtype=torch.float64) + 0.5
    q = torch.randn(5, 1, 4, generator=generator, dtype=torch.float64)
    x = kkt_point(laplacian, Q, q)
    assert laplacian.delta(x).abs().max() < 1e-12
    # the gradient must lie in the image of δᵀ, that is be orthogonal to the kernel of δ, which has 20 - 8 dimensions
    values, vectors = torch.linalg.eigh(laplacian.dense()[0])
    kernel = vectors[:, values < 1e-10]
    assert kernel.shape[1] == 20 - 4 * EDGE_DIM
    assert (kernel.t() @ (Q * x + q).flatten()).abs().max() < 1e-10


def test_only_the_dual_start_reaches_it():
    assert kkt_errors("dual", 1)[METRIC] < 1e-9
    assert 1e-5 < kkt_errors("zero", 1)[METRIC] < 0.1
    assert kkt_errors("released", 1)[METRIC] > 0.1

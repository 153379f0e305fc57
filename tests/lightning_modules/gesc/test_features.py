import pytest
import torch
from torch import nn

from lightning_modules.gesc.features import drop_features, feature_product, project

ROWS, COLUMNS = 400, 300
G = torch.Generator().manual_seed(0)
DENSE = torch.randn(ROWS, COLUMNS, generator=G) * (torch.rand(ROWS, COLUMNS, generator=G) < 0.1)
SPARSE = DENSE.to_sparse_csr()


@pytest.mark.parametrize("x", [DENSE, SPARSE], ids=["dense", "sparse"])
@pytest.mark.parametrize("share", [0.2, 0.5, 0.9])
def test_dropout_takes_its_share_and_scales_the_rest(x: torch.Tensor, share: float):
    torch.manual_seed(0)
    dropped = drop_features(x, share, training=True)
    assert dropped.layout == x.layout
    dropped = dropped.to_dense()
    assert (dropped[DENSE == 0] == 0).all(), "a zero stays one"
    there, kept = DENSE != 0, dropped != 0
    assert kept.sum() / there.sum() == pytest.approx(1 - share, abs=0.02)
    assert torch.allclose(dropped[kept], DENSE[kept] / (1 - share))
    mean = torch.stack([drop_features(x, share, training=True).to_dense() for _ in range(200)]).mean(0)
    assert (mean[there] / DENSE[there]).mean() == pytest.approx(1, abs=0.02)
    by_row = kept.sum(1)[there.sum(1) > 0]
    assert by_row.min() < by_row.max(), "entries, not rows"


def test_dropout_of_hidden_states_and_complex_entries():
    torch.manual_seed(0)
    z = torch.randn(200, 10, dtype=torch.complex64)
    dropped = drop_features(z, 0.5, training=True)
    kept = dropped != 0
    assert kept.float().mean() == pytest.approx(0.5, abs=0.05)
    assert torch.allclose(dropped[kept], 2 * z[kept])
    torch.manual_seed(3)
    expected = nn.functional.dropout(DENSE, 0.3)
    torch.manual_seed(3)
    assert torch.equal(drop_features(DENSE, 0.3, training=True), expected)


@pytest.mark.parametrize("x", [DENSE, SPARSE, DENSE.to(torch.complex64)], ids=["dense", "sparse", "complex"])
def test_nothing_is_dropped_without_training_or_share(x: torch.Tensor):
    assert drop_features(x, 0.5, training=False) is x
    assert drop_features(x, 0.0, training=True) is x


def test_everything_can_be_dropped():
    assert (drop_features(SPARSE, 1.0, training=True).to_dense() == 0).all()


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("share", [0.0, 0.5])
def test_a_linear_layer_of_sparse_features(bias: bool, share: float):
    torch.manual_seed(0)
    line = nn.Linear(COLUMNS, 7, bias=bias).double()
    x = drop_features(SPARSE.double(), share, training=True)
    weights = torch.randn(ROWS, 7, dtype=torch.float64)
    expected, found = line(x.to_dense()), project(x, line)
    assert torch.allclose(found, expected, atol=1e-12)
    gradients = [torch.autograd.grad((y * weights).sum(), list(line.parameters())) for y in (expected, found)]
    for one, other in zip(*gradients, strict=True):
        assert torch.allclose(one, other, atol=1e-12)
        assert one.abs().max() > 0
    with torch.inference_mode():
        assert torch.allclose(project(x, line), expected, atol=1e-12)


def test_other_layouts_are_refused():
    coo, complex_rows = DENSE.to_sparse_coo(), DENSE.to(torch.complex64).to_sparse_csr()
    for use in (lambda x: drop_features(x, 0.5, training=False), lambda x: feature_product(x, torch.ones(COLUMNS, 2))):
        with pytest.raises(ValueError, match=r"dense or sparse CSR, x is torch.sparse_coo: use x.to_sparse_csr\(\)"):
            use(coo)
        with pytest.raises(ValueError, match=r"sparse features must be real, x is torch.complex64: use x.to_dense\(\)"):
            use(complex_rows)

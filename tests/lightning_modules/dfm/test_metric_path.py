import math

import pytest
import torch
from flow_laws import Flow, random_flow

from lightning_modules.dfm.exact_law import tv
from lightning_modules.dfm.metric_path import MetricPath, embedding_distance
from lightning_modules.dfm.path import DiscretePath
from lightning_modules.dfm.solvers import get_discrete_solver
from lightning_modules.dfm.solvers.time_grid import make_time_grid
from lightning_modules.dfm.sources import MaskSource

SIZE = 3
ALIKE = MetricPath(1 - torch.eye(SIZE, dtype=torch.float64), c=1.5, a=1.2)
CODEBOOK = torch.randn(6, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
PATH = MetricPath(embedding_distance(CODEBOOK))


class EqualMixture:
    """The mixture that a metric path is if all values are equally far from each other."""

    def kappa(self, t):
        return -torch.expm1(self.log_one_minus_kappa(t))

    def log_one_minus_kappa(self, t):
        beta = ALIKE.beta(t)
        return math.log(SIZE) - beta - torch.log1p((SIZE - 1) * torch.exp(-beta))

    def dkappa(self, t):
        beta = ALIKE.beta(t)
        return torch.exp(self.log_one_minus_kappa(t)) * ALIKE.dbeta(t) / (1 + (SIZE - 1) * torch.exp(-beta))

    def kappa_inverse(self, kappa):
        rest = 1 - torch.as_tensor(kappa, dtype=torch.float64)
        ratio = (torch.log(SIZE - (SIZE - 1) * rest) - torch.log(rest)).clamp_min(0) / ALIKE.c
        return ratio ** (1 / ALIKE.a) / (1 + ratio ** (1 / ALIKE.a))


FLOW = random_flow("uniform", SIZE, 3, EqualMixture())
GRID = [0.05, 0.3, 0.6]


def test_the_path_and_its_slope():
    t = torch.linspace(0.01, 0.9, 20, dtype=torch.float64, requires_grad=True)
    (slope,) = torch.autograd.grad(PATH.beta(t).sum(), t)
    assert torch.allclose(slope, PATH.dbeta(t.detach()))
    assert PATH.beta(0.5).item() == pytest.approx(3)
    assert PATH.dbeta(0.0).item() == 0
    x_1 = torch.arange(6).view(1, 6)
    assert torch.allclose(PATH.log_probabilities(x_1, 0.0).exp(), torch.full((), 1 / 6).double())
    assert torch.allclose(PATH.log_probabilities(x_1, 0.999).exp()[0], torch.eye(6).double(), atol=1e-6)


def test_distances_by_hand():
    distance = embedding_distance(torch.tensor([[2.0, 0.0], [0.0, 5.0], [-1.0, 0.0]]))
    assert torch.allclose(distance, torch.tensor([[0.0, 4, 16], [4, 0, 4], [16, 4, 0]]))


def test_rates_keep_the_law_of_the_path():
    t, step = torch.tensor(0.4, dtype=torch.float64), 1e-6
    x_1, y = torch.meshgrid(torch.arange(6), torch.arange(6), indexing="ij")
    rates = PATH.rates(y, x_1, t)
    law = PATH.log_probabilities(x_1[:, :1], t).exp()[:, 0]
    later, earlier = (PATH.log_probabilities(x_1[:, :1], t + s).exp()[:, 0] for s in (step, -step))
    flow = torch.einsum("by,byz->bz", law, rates) - law * rates.sum(dim=-1)
    assert torch.allclose(flow, (later - earlier) / (2 * step), atol=1e-7)
    assert (rates.diagonal(dim1=1, dim2=2) == 0).all()
    assert (rates >= 0).all()


def test_points_of_the_path():
    x_1 = torch.randint(6, (4, 50_000), generator=torch.Generator().manual_seed(1))
    t = torch.tensor([0.1, 0.3, 0.5, 0.7], dtype=torch.float64)
    for options in ({"generator": torch.Generator().manual_seed(2)}, {"seeds": torch.arange(4)}):
        found = PATH.sample(x_1, x_1, t, **options)
        for row in range(4):
            at = x_1[row] == 2
            share = found.x_t[row, at].bincount(minlength=6).double() / at.sum()
            right = PATH.log_probabilities(torch.tensor([[2]]), t[row]).exp().flatten()
            assert torch.allclose(share, right, atol=0.02)


def test_equal_distances_make_the_mixture():
    t = torch.linspace(0.05, 0.9, 10, dtype=torch.float64)
    x_1, y = torch.zeros(10, 1, dtype=torch.int64), torch.ones(10, 1, dtype=torch.int64)
    scheduler = EqualMixture()
    assert torch.allclose(scheduler.kappa_inverse(scheduler.kappa(t)), t)
    law = ALIKE.log_probabilities(x_1, t.unsqueeze(-1)).exp()[:, 0]
    kappa = scheduler.kappa(t)
    assert torch.allclose(law[:, 0], kappa + (1 - kappa) / SIZE)
    assert torch.allclose(law[:, 1], (1 - kappa) / SIZE)
    hazard = scheduler.dkappa(t) / (1 - kappa)
    assert torch.allclose(ALIKE.rates(y, x_1, t.unsqueeze(-1))[:, 0, 0], hazard)


def counts(x: torch.Tensor) -> torch.Tensor:
    return (x * SIZE ** torch.arange(2, -1, -1)).sum(dim=1).bincount(minlength=27) / len(x)


def metric_run(flow: Flow, name: str, time_grid: list[float], batch: int = 40_000, **options: object):
    solver = get_discrete_solver(name, model=flow.oracle, path=ALIKE, vocabulary_size=SIZE, source=flow.source, **options)
    generator = torch.Generator().manual_seed(5)
    return solver.sample(flow.source.init((batch, 3), generator), time_grid=time_grid, generator=generator, final="state")


def test_many_sub_points_are_the_closed_form():
    law = FLOW.exact.propagate("tc", make_time_grid(FLOW.scheduler, time_grid=GRID), rate="conditional")
    distance = {m: tv(counts(metric_run(FLOW, "metric_tc", GRID, sub_points=m).x), law) for m in (1, 64)}
    assert distance[64] < 0.015
    assert distance[1] > 0.03


def test_renewals_come_nearer_to_the_path():
    times = [0.001, 0.3, 0.5, 0.6]
    found = {name: metric_run(FLOW, name, times, sub_points=32) for name in ("metric_tc", "metric_lc")}
    gap = {name: tv(counts(run.x), FLOW.target(times[-1])) for name, run in found.items()}
    assert gap["metric_lc"] < 0.75 * gap["metric_tc"]
    assert found["metric_tc"].nfe_calls == 3
    assert found["metric_lc"].nfe_calls == 6
    assert 4 < found["metric_lc"].evals_per_sample < 6


def test_beyond_all_tokens_location_correction_is_time_correction():
    plain = metric_run(FLOW, "metric_tc", GRID, batch=500, sub_points=8)
    corrected = metric_run(FLOW, "metric_lc", GRID, batch=500, sub_points=8, j=4)
    assert torch.equal(plain.x, corrected.x)
    assert corrected.nfe_calls == 2


def test_fewer_jumps_than_j_all_stand():
    plain = metric_run(FLOW, "metric_tc", [0.2, 0.5], batch=2000, sub_points=8)
    corrected = metric_run(FLOW, "metric_lc", [0.2, 0.5], batch=2000, sub_points=8, j=3)
    differ = (plain.x != corrected.x).any(dim=1).sum().item()
    assert differ <= round((corrected.evals_per_sample - 1) * 2000) < 2000
    assert corrected.evals_per_sample > 1


def test_bad_input():
    distance = 1 - torch.eye(3)
    for table, message in ((distance[:2], r"\[V, V\]"), (distance + 1, "0 on the diagonal"), (distance * 0, "told apart")):
        with pytest.raises(ValueError, match=message):
            MetricPath(table)
    with pytest.raises(ValueError, match="must be positive"):
        MetricPath(distance, c=0.0)
    options = {"model": FLOW.oracle, "vocabulary_size": 3, "source": FLOW.source}
    with pytest.raises(TypeError, match="needs a MetricPath, got DiscretePath"):
        get_discrete_solver("metric_tc", path=FLOW.path, **options)
    with pytest.raises(TypeError, match="needs a DiscretePath, got MetricPath"):
        get_discrete_solver("tc", path=ALIKE, **options)
    with pytest.raises(ValueError, match="sub_points=0"):
        get_discrete_solver("metric_tc", path=ALIKE, sub_points=0, **options)
    with pytest.raises(ValueError, match="j=0"):
        get_discrete_solver("metric_lc", path=ALIKE, j=0, **options)
    with pytest.raises(ValueError, match="uniform tokens"):
        get_discrete_solver("metric_tc", model=FLOW.oracle, path=ALIKE, vocabulary_size=3, source=MaskSource(2))
    assert isinstance(FLOW.path, DiscretePath)

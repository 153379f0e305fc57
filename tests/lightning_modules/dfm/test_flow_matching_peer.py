"""Beside the package ``flow_matching``, where it is installed."""

import pytest
import torch
from flow_laws import p_value, random_flow
from torch import Tensor

pytest.importorskip("flow_matching")
from flow_matching.loss import MixturePathGeneralizedKL
from flow_matching.path import MixtureDiscreteProbPath
from flow_matching.path.scheduler import PolynomialConvexScheduler
from flow_matching.solver import MixtureDiscreteEulerSolver
from flow_matching.utils import ModelWrapper

from lightning_modules.dfm.losses import MixtureGeneralizedKL
from lightning_modules.dfm.path import DiscretePath
from lightning_modules.dfm.schedulers import PolynomialScheduler, wrap_scheduler
from lightning_modules.dfm.solvers import get_discrete_solver
from lightning_modules.dfm.solvers.time_grid import make_time_grid

GENERATOR = torch.Generator().manual_seed(0)
TIMES = [0.0, 0.3, 0.6, 0.8, 1.0]


def test_losses_are_equal():
    logits = torch.randn(20, 6, 5, generator=GENERATOR)
    x_1, x_t = torch.randint(5, (2, 20, 6), generator=GENERATOR)
    t = torch.rand(20, generator=GENERATOR) * 0.98
    peer = MixturePathGeneralizedKL(MixtureDiscreteProbPath(PolynomialConvexScheduler(2.0)))(logits, x_1, x_t, t)
    ours = MixtureGeneralizedKL(DiscretePath(PolynomialScheduler(2.0)))(logits, x_1, x_t, t)
    assert ours.item() == pytest.approx(peer.item(), rel=1e-6)


def test_schedulers_and_paths_are_equal():
    wrapped, ours = wrap_scheduler(PolynomialConvexScheduler(2.0)), PolynomialScheduler(2.0)
    t = torch.linspace(0, 0.99, 20, dtype=torch.float64)
    for method in ("kappa", "dkappa", "kappa_inverse", "log_one_minus_kappa"):
        assert torch.allclose(getattr(wrapped, method)(t), getattr(ours, method)(t))


class Wrapped(ModelWrapper):
    def forward(self, x: Tensor, t: Tensor, **extras) -> Tensor:
        return self.model(x=x, t=t.expand(len(x)), **extras)


def test_conditional_euler_has_the_law_of_their_solver():
    flow = random_flow("uniform", 3, 3)
    law = flow.exact.propagate("euler", make_time_grid(flow.scheduler, time_grid=TIMES[:-1]), rate="conditional")
    law = flow.exact.finish(law, TIMES[-2], "posterior")
    model, x_init = Wrapped(flow.oracle), flow.source.init((50_000, 3), GENERATOR)
    theirs = MixtureDiscreteEulerSolver(model, MixtureDiscreteProbPath(PolynomialConvexScheduler(1.0)), vocabulary_size=3)
    torch.manual_seed(0)
    peer = theirs.sample(x_init, step_size=None, time_grid=torch.tensor(TIMES))
    assert p_value(peer, law, 3) > 1e-4
    path = DiscretePath(PolynomialConvexScheduler(1.0))
    solver = get_discrete_solver("euler", model=model, path=path, vocabulary_size=3, source=flow.source, rate="conditional")
    ours = solver.sample(x_init, time_grid=torch.tensor(TIMES), final="posterior", generator=GENERATOR)
    assert p_value(ours.x, law, 3) > 1e-4

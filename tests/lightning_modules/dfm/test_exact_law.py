import pytest
import torch
from flow_laws import DELTA, Flow, markov_flow

from lightning_modules.dfm.exact_law import ExactLaw, kl, tv
from lightning_modules.dfm.solvers.time_grid import make_time_grid

pytestmark = pytest.mark.filterwarnings("ignore:ordinal tau-leaping")

SAMPLERS = {
    "tau_leaping": ("tau_leaping", {}),
    "tau_categorical": ("tau_leaping", {"mode": "categorical"}),
    "euler": ("euler", {}),
    "tc_cond": ("tc", {"rate": "conditional"}),
    "tc": ("tc", {}),
    "lc": ("lc", {}),
}
TV_TO_TARGET = {
    ("uniform", 1): [0.22646210, 0.22588809, 0.22047474, 0.21455873, 0.21463477, 0.19165114],
    ("uniform", 4): [0.07604898, 0.07861291, 0.06446230, 0.05257614, 0.03836743, 0.01633551],
    ("uniform", 8): [0.04000334, 0.04167875, 0.03289885, 0.02577845, 0.01777418, 0.00802139],
    ("uniform", 16): [0.02040852, 0.02134167, 0.01655916, 0.01270506, 0.00850415, 0.00412509],
    ("mask", 1): [0.76728933, 0.80784943, 0.63048930, 0.21915797, 0.21915797, 0.06755546],
    ("mask", 4): [0.32935850, 0.39295763, 0.21216999, 0.08833183, 0.08833183, 0.01290391],
    ("mask", 8): [0.17042179, 0.19491942, 0.10835380, 0.04600474, 0.04600474, 0.00355748],
    ("mask", 16): [0.08592774, 0.09407744, 0.05455019, 0.02328605, 0.02328605, 0.00091262],
}
NODES = {1: 16, 4: 8, 8: 4, 16: 3}
FLOWS = {kind: markov_flow(kind) for kind in ("uniform", "mask")}
T_END = 1 - DELTA


def law(flow: Flow, name: str, n_steps: int) -> torch.Tensor:
    solver, options = SAMPLERS.get(name, (name, {}))
    return flow.exact.propagate(solver, flow.grid(n_steps), nodes=NODES.get(n_steps, 8), **options)


def test_marginal_of_the_path():
    for kind, from_data in {"uniform": 0.02447, "mask": 0.00059}.items():
        flow = FLOWS[kind]
        target = flow.target(T_END)
        assert target.sum().item() == pytest.approx(1)
        assert tv(flow.exact.finish(target, T_END), flow.data) == pytest.approx(from_data, abs=5e-6)


@pytest.mark.parametrize(("kind", "n_steps"), TV_TO_TARGET)
def test_total_variation(kind: str, n_steps: int):
    flow = FLOWS[kind]
    laws = {name: law(flow, name, n_steps) for name in SAMPLERS}
    for found in laws.values():
        assert found.sum().item() == pytest.approx(1)
        assert (found > -1e-15).all()
    distances = [tv(flow.target(T_END), found) for found in laws.values()]
    assert distances == pytest.approx(TV_TO_TARGET[kind, n_steps], abs=1e-6)


@pytest.mark.parametrize(
    ("kind", "name", "values"),
    [
        ("uniform", "theta_trap", {1: 0.0787, 2: 0.0277}),
        ("uniform", "theta_rk2", {1: 0.189, 2: 0.102}),
        ("mask", "theta_trap", {1: 0.289, 2: 0.104, 4: 0.0374, 8: 0.0144}),
        ("mask", "theta_rk2", {1: 0.718, 2: 0.464, 4: 0.238, 8: 0.115}),
    ],
)
def test_two_stage_samplers(kind: str, name: str, values: dict[int, float]):
    flow = FLOWS[kind]
    for n_steps, value in values.items():
        assert tv(flow.target(T_END), law(flow, name, n_steps)) == pytest.approx(value, abs=5.1e-4 if value > 0.1 else 5.1e-5)


def test_divergence_and_finish_at_eight_steps():
    right = {"uniform": [0.00440128, 0.00119659, 0.00021479], "mask": [0.03182407, 0.01000798, 0.00008385]}
    for kind, values in right.items():
        flow = FLOWS[kind]
        laws = [law(flow, name, 8) for name in ("euler", "tc", "lc")]
        assert [kl(flow.target(T_END), found) for found in laws] == pytest.approx(values, abs=1e-6)
        if kind == "mask":
            filled = [tv(flow.exact.finish(found, T_END), flow.data) for found in laws]
            assert filled == pytest.approx([0.03936195, 0.04584528, 0.00414858], abs=1e-6)


def test_finish_at_four_steps():
    flow = FLOWS["mask"]
    filled = [tv(flow.exact.finish(law(flow, name, 4), T_END), flow.data) for name in ("euler", "tc", "lc")]
    assert filled == pytest.approx([0.06553514, 0.08747421, 0.01349501], abs=1e-6)


@pytest.mark.parametrize(("kind", "name"), [("uniform", "uniformization"), ("mask", "first_hitting")])
def test_exact_simulation_has_the_law_of_the_path(kind: str, name: str):
    flow = FLOWS[kind]
    assert tv(flow.exact.propagate(name, flow.grid(1)), flow.target(T_END)) < 1e-6


def test_finishes_differ():
    flow = FLOWS["mask"]
    found = law(flow, "tc", 4)
    assert torch.equal(flow.exact.finish(found, T_END, "state"), found)
    filled, drawn = (flow.exact.finish(found, T_END, final) for final in ("fill", "posterior"))
    assert torch.allclose(filled, drawn), "an unmasked token is drawn as itself"
    uniform = FLOWS["uniform"]
    redrawn = uniform.exact.finish(uniform.target(T_END), T_END, "posterior")
    assert 0 < tv(redrawn, uniform.data) < tv(uniform.target(T_END), uniform.data)


def test_divergence_is_infinite_where_a_law_has_no_mass():
    a, b = torch.tensor([0.5, 0.5, 0.0]).double(), torch.tensor([1.0, 0.0, 0.0]).double()
    assert kl(b, a) == pytest.approx(0.6931472)
    assert kl(a, b) == torch.inf


def test_bad_input():
    flow = FLOWS["uniform"]
    with pytest.raises(ValueError, match="GiB"):
        ExactLaw(flow.oracle, flow.source, flow.path, length=5)
    with pytest.raises(ValueError, match="needs length"):
        ExactLaw(lambda x, t: x, flow.source, flow.path)
    with pytest.raises(ValueError, match="before t = 1"):
        flow.exact.propagate("euler", make_time_grid(flow.scheduler, time_grid=[0.0, 0.5, 1.0]))
    with pytest.raises(ValueError, match="no discrete solver"):
        flow.exact.propagate("midpoint", flow.grid(2))

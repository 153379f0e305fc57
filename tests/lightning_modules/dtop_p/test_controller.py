import copy
import math
import warnings

import pytest
import torch
from torch import Tensor

from lightning_modules.dtop_p.closed_form import initial_threshold
from lightning_modules.dtop_p.controller import SparsityController
from lightning_modules.dtop_p.selection import top_p_mask


def controller(num_experts: int = 8, target=2.0, num_layers: int = 1, **settings) -> SparsityController:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return SparsityController(num_experts, target, num_layers, **settings)


def counts_of(mean: float, tokens: int = 1000) -> Tensor:
    """Whole counts with this mean."""
    total = round(mean * tokens)
    return torch.full((tokens,), total // tokens) + (torch.arange(tokens) < total % tokens)


def see(of: SparsityController, *means: float) -> float:
    for layer, mean in enumerate(means):
        of.observe(layer, counts_of(mean))
    return of.step().p.item()


def test_by_hand():
    of = controller(p_init=0.3, kp=0.5, ki=0.1)
    assert [see(of, mean) for mean in (1, 3, 2, 2.5)] == pytest.approx([0.375, 0.2375, 0.3, 0.2625], abs=1e-14)
    assert of.integral.item() == pytest.approx(-0.0625, abs=1e-14)
    assert of.num_updates == 4


def test_average_over_layers_and_micro_batches():
    """Layer 0: 6 active for 2 tokens and 6 for 6; layer 1: 2 for 2 and 12 for 2. Layers count alike, whatever their tokens."""
    of = controller(num_layers=2, p_init=0.5, kp=0.5, ki=0.1)
    for layer, counts in ((0, [4, 2]), (1, [1, 1]), (0, [1] * 6), (1, [6] * 2)):
        of.observe(layer, torch.tensor(counts))
    info = of.step()
    assert info.active_L.tolist() == [12 / 8, 14 / 4]
    assert info.active.item() == 2.5
    assert info.p.item() == pytest.approx(0.5 - 0.6 * 0.5 / 8, abs=1e-15)
    assert not of.step().updated, "what was observed is forgotten"


def plant(of: SparsityController, gain: float, offset: float, steps: int) -> list[float]:
    """Let a linear plant with a/N = g p + c answer, without rounding to whole experts."""
    errors = []
    for _ in range(steps):
        share = gain * of.p + offset
        of.observe(0, of.num_experts * share.reshape(1))
        errors.append(of.step().error.item())
    return errors


@pytest.mark.parametrize(("kp", "ki", "settles"), [(0.3, 0.2, True), (1.0, 0.2, True), (1.5, 0.5, False), (1.1, 0.6, False)])
def test_linear_plant(kp, ki, settles):
    errors = plant(controller(target=4, p_init=0.3, kp=kp, ki=ki), 0.78, 0.0, 300)
    assert (max(map(abs, errors[-10:])) < 1e-6) == settles
    if not settles:
        assert max(map(abs, errors[-10:])) > 0.1


def test_without_integral_an_offset_remains():
    """e = T/N - c - g (p0 + kp e), so e = (T/N - c - g p0) / (1 + g kp)."""
    errors = plant(controller(target=4, p_init=0.3, kp=0.5, ki=0.0), 0.78, 0.05, 200)
    assert errors[-1] == pytest.approx((0.5 - 0.05 - 0.78 * 0.3) / (1 + 0.78 * 0.5), rel=1e-9)


def test_without_gains_p_stays():
    of = controller(p_init=0.4, kp=0, ki=0)
    assert [see(of, mean) for mean in (1, 8, 3)] == [0.4] * 3
    assert of.step().p == 0.4


def saturating(of: SparsityController, steps: int) -> list[float]:
    """A plant that has all N experts at p = 1 and cannot give more."""
    return [see(of, 1 + (of.num_experts - 1) * of.p.item()) for _ in range(steps)]


@pytest.mark.parametrize("anti_windup", [True, False])
def test_anti_windup(anti_windup):
    of = controller(p_init=0.5, kp=0.2, ki=0.5, anti_windup=anti_windup)
    of.target.fill_(8 + 5)
    ps = saturating(of, 100)
    assert ps[-1] == of.p_max
    assert (of.integral.abs() < 5) == anti_windup
    of.target.fill_(4.0)
    saturating(of, 10)
    recovered = abs(1 + 7 * of.p.item() - 4) < 0.3
    assert recovered == anti_windup


def test_layers_apart_on_drifting_logits():
    """Each layer's logits sharpen at a pace of their own; every layer keeps its own target."""
    targets = (2.0, 4.0, 7.0)
    of = controller(16, targets, 3, scope="layer")
    assert of.p.tolist() == [initial_threshold(target, 16) for target in targets]
    generator, seen = torch.Generator().manual_seed(0), []
    for step in range(150):
        for layer in range(3):
            sharpness = 1.6 - 0.6 * math.exp(-step / (10 + 10 * layer))
            logits = sharpness * torch.randn(1000, 16, generator=generator)
            of.observe(layer, top_p_mask(logits.softmax(-1), of.current(layer)).sum(-1))
        seen.append(of.step().active_L)
    late = torch.stack(seen[-50:]).mean(0)
    assert late.tolist() == pytest.approx(targets, rel=0.03)
    assert (of.p > of.p0 + 0.05).all(), "the drift asked for other thresholds"


def test_a_layer_without_tokens_keeps_its_p():
    of = controller(16, 4, 2, scope="layer", p_init=0.5)
    of.observe(1, counts_of(8))
    info = of.step()
    assert info.updated.tolist() == [False, True]
    assert of.p[0] == 0.5
    assert of.p[1] == 0.5 - 0.5 * 4 / 16
    assert of.integral.tolist() == [0, -4 / 16]


def test_ranks_add_their_sums():
    """Two ranks with unequal numbers of tokens step as one process with all of them."""
    together, ranks = controller(p_init=0.4), [controller(p_init=0.4) for _ in range(2)]
    batches = [torch.tensor([1, 2, 6, 8]), torch.tensor([3])]
    together.observe(0, torch.cat(batches))
    for rank, batch in zip(ranks, batches, strict=True):
        rank.observe(0, batch)
    total = sum(rank._seen_2L for rank in ranks)

    def in_place(seen: Tensor) -> None:
        seen.copy_(total)

    expected = together.step().p
    assert ranks[0].step(in_place).p == ranks[1].step(lambda seen: total).p == expected
    assert expected != 0.4 + 0.5 * (2 - (17 / 4 + 3) / 2) / 8, "not the mean of the ranks' means"


def test_padding_does_not_count():
    of = controller(p_init=0.4)
    of.observe(0, torch.tensor([[3, 7], [1, 7]]), torch.tensor([[True, False], [True, False]]))
    assert of.step().active == 2


def test_nothing_to_see_changes_nothing():
    of = controller(p_init=0.4)
    see(of, 5)
    state = copy.deepcopy(of.state_dict())
    of.observe(0, torch.tensor([3, 4]), torch.tensor([False, False]))
    assert not of.step().updated
    of.observe(0, torch.tensor([float("nan")]))
    assert not of.step().updated
    assert all(torch.equal(of.state_dict()[name], value) for name, value in state.items())


def test_evaluation_observes_nothing():
    of = controller(p_init=0.4)
    of.observe(0, torch.tensor([5]))
    of.eval()
    of.observe(0, torch.tensor([1, 1, 1]))
    of.train()
    assert of.step().active == 5


def test_state_is_saved_but_not_what_was_observed():
    of, other = controller(p_init=0.4), controller(p_init=0.7)
    see(of, 5)
    of.observe(0, torch.tensor([5]))
    assert set(of.state_dict()) == {"p", "integral", "p0", "target", "experts", "num_updates"}
    other.load_state_dict(of.state_dict())
    assert not other.step().updated
    of.step()
    assert other.p != of.p
    other.load_state_dict(of.state_dict())
    assert [see(other, mean) for mean in (3, 1, 2)] == [see(of, mean) for mean in (3, 1, 2)]


def test_float64_survives_conversion():
    of = torch.nn.ModuleList([controller(p_init=0.4, eval_p_ema=0.99)]).bfloat16()[0]
    assert of.p.dtype == of.integral.dtype == of.p_ema.dtype == torch.float64
    assert of.p == 0.4
    assert of.current(0).dtype == torch.float64


def test_moving_average_in_evaluation():
    of = controller(p_init=0.4, eval_p_ema=0.9)
    first, second = see(of, 5), see(of, 4)
    assert of.current(0) == second
    assert of.eval().current(0).item() == pytest.approx(0.9 * (0.9 * 0.4 + 0.1 * first) + 0.1 * second)


def test_current_follows_without_a_new_tensor():
    of = controller(num_layers=2, scope="layer", p_init=0.4)
    p = of.current(1)
    of.observe(1, counts_of(5))
    of.step()
    assert p == of.p[1] != 0.4
    assert p.ndim == 0


def test_checkpoint_of_another_controller():
    of = controller(target=3, p_init=0.4)
    see(of, 5)
    model = torch.nn.ModuleDict({"controller": controller(target=2)})
    state = torch.nn.ModuleDict({"controller": of}).state_dict()
    with pytest.raises(ValueError, match=r"8 experts and target 3.0, this one 8 and 2.0.*reset_controller"):
        model.load_state_dict(state)
    for other in (controller(16, 3), controller(target=3, scope="layer", num_layers=2)):
        with pytest.raises(ValueError, match="reset_controller"):
            other.load_state_dict(of.state_dict())
    fresh = controller(target=2, scope="layer", num_layers=2, reset_controller=True)
    fresh.load_state_dict(of.state_dict())
    assert fresh.p.tolist() == [initial_threshold(2, 8)] * 2
    same = controller(target=3, reset_controller=True)
    same.load_state_dict(of.state_dict())
    assert same.p == of.p


def test_unstable_gains_are_warned_about():
    with pytest.warns(UserWarning, match=r"must be below 2"):
        SparsityController(16, 4, 1, kp=1.5, ki=0.5)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        SparsityController(16, 4, 1)
        SparsityController(64, 8, 1, p_init=0.4, kp=0, ki=0)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"target": 0}, "target=0 .*at least one"),
        ({"target": 0.5}, "target=0.5"),
        ({"target": 9}, "between 1 and the 8 experts"),
        ({"target": [2.0]}, "scope='layer'"),
        ({"target": [2.0, 3.0], "scope": "layer"}, "2 targets for 1 layers"),
        ({"scope": "local"}, "scope='local'"),
        ({"num_layers": 0}, "num_layers=0"),
        ({"kp": -0.1}, "kp=-0.1"),
        ({"ki": float("nan")}, "ki=nan"),
        ({"p_init": 0.0}, "p_init=0.0"),
        ({"p_init": 1.0}, "p_init=1.0"),
        ({"p_init": "automatic"}, "'auto'"),
        ({"p_min": 0.9, "p_max": 0.5}, "p_min < p_max"),
        ({"theta_init": 0}, "theta_init"),
        ({"eval_p_ema": 1.0}, "eval_p_ema"),
    ],
)
def test_bad_settings(settings, words):
    with pytest.raises(ValueError, match=words):
        controller(**settings)


def test_bad_observation():
    of = controller(num_layers=2)
    with pytest.raises(ValueError, match="layers 0 to 1, there is no 2"):
        of.observe(2, torch.tensor([1]))
    with pytest.raises(ValueError, match="layer 1: valid has shape"):
        of.observe(1, torch.tensor([1, 2]), torch.tensor([True]))

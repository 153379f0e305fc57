import pytest
import torch
from torch import Tensor

from lightning_modules.dtop_p.router import TopPRouter


def tokens(number: int = 40, d: int = 16, seed: int = 0) -> Tensor:
    return torch.randn(number, d, generator=torch.Generator().manual_seed(seed))


def router(**settings) -> TopPRouter:
    torch.manual_seed(0)
    return TopPRouter(16, 8, **settings)


p = torch.tensor(0.6)


def test_scores_by_hand():
    """z = (0, 2): mean 1, population deviation 1."""
    scores = router(theta_init=1.5).scores(torch.tensor([[0.0, 2.0], [5.0, 1.0]], dtype=torch.float64))
    torch.testing.assert_close(scores, torch.tensor([[-1.5, 1.5], [1.5, -1.5]], dtype=torch.float64), rtol=1e-5, atol=0)


def test_layer_axis_by_hand():
    """Centred logits (-1, 1), (2, -2): root mean square sqrt(10 / 4)."""
    of = router(norm_axis="layer")
    logits = torch.tensor([[0.0, 2.0], [5.0, 1.0], [9.0, -9.0]], dtype=torch.float64)
    expected = torch.tensor([[-1.0, 1.0], [2.0, -2.0]], dtype=torch.float64) / 2.5**0.5
    torch.testing.assert_close(of.scores(logits[:2]), expected, rtol=1e-5, atol=0)
    torch.testing.assert_close(of.scores(logits, torch.tensor([True, True, False]))[:2], expected, rtol=1e-5, atol=0)


def test_scale_and_shift_of_the_logits_do_not_matter():
    of, logits = router(), tokens(30, 8).double()
    generator = torch.Generator().manual_seed(1)
    scale = 0.1 + 5 * torch.rand(30, 1, generator=generator, dtype=torch.float64)
    shift = torch.randn(30, 1, generator=generator, dtype=torch.float64)
    expected = of.scores(logits).softmax(-1)
    torch.testing.assert_close(of.scores(scale * logits + shift).softmax(-1), expected, rtol=0, atol=1e-5)
    without = router(drn=False)
    assert (without.scores(scale * logits).softmax(-1) - without.scores(logits).softmax(-1)).abs().max() > 0.1


def test_larger_theta_is_sharper():
    x, counts, entropies = tokens(), [], []
    for theta in (0.3, 0.7, 1.0, 1.5, 3.0):
        result = router(theta_init=theta)(x, p)
        counts.append(result.counts)
        entropies.append(-(result.probs * result.probs.log()).sum(-1))
    assert (torch.stack(counts).diff(dim=0) <= 0).all()
    assert (torch.stack(entropies).diff(dim=0) < 0).all()
    assert (counts[0] > counts[-1]).all()


def test_equal_logits_are_uniform_and_finite():
    of = router()
    x = torch.zeros(3, 16, requires_grad=True)
    result = of(x, p)
    torch.testing.assert_close(result.probs, torch.full((3, 8), 1 / 8))
    result.gates.square().sum().backward()
    assert x.grad.isfinite().all()
    assert of.weight.grad.isfinite().all()
    assert of.theta.grad.isfinite().all()


@pytest.mark.parametrize("mode", ["dtopp", "topp", "topk"])
def test_permuted_experts(mode):
    of, order = router(mode=mode, k=3 if mode == "topk" else None), torch.tensor([3, 1, 7, 0, 5, 2, 6, 4])
    threshold = None if mode == "topk" else p
    plain = of(tokens(), threshold)
    with torch.no_grad():
        of.weight.copy_(of.weight[order])
    permuted = of(tokens(), threshold)
    assert torch.equal(permuted.mask, plain.mask[:, order])
    torch.testing.assert_close(permuted.gates, plain.gates[:, order], rtol=0, atol=1e-6)
    assert torch.equal(permuted.counts, plain.mask.sum(-1))
    assert (plain.mask.float().mean(0) < 1).any()


def test_a_token_is_routed_alone():
    of, x = router(), tokens()
    whole = of(x, p)
    for part in (slice(0, 1), slice(5, 20)):
        torch.testing.assert_close(of(x[part], p).gates, whole.gates[part], rtol=0, atol=1e-6)
    layer = router(norm_axis="layer")
    assert not torch.allclose(layer(x[:1], p).gates, layer(x, p).gates[:1], atol=1e-3)


def test_gradients():
    of, threshold = router(), torch.tensor(0.6, requires_grad=True)
    result = of(tokens(), threshold)
    value = (result.gates * tokens(40, 8, seed=1)).sum()
    (of_p,) = torch.autograd.grad(value, threshold, allow_unused=True, retain_graph=True)
    value.backward()
    assert of_p is None
    assert not result.mask.requires_grad
    assert of.theta.grad.abs() > 1e-3
    assert of.weight.grad.abs().max() > 1e-3


def test_router_learns_through_the_gates_alone():
    """A token with one expert has a gate of 1 whatever the logits, so it teaches the router nothing."""
    of = router()
    of(tokens(), torch.tensor(1e-6)).gates.square().sum().backward()
    assert of.weight.grad.abs().max() < 1e-6


def test_float32_under_autocast():
    of, x = router(), tokens()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        inside = of(x, p)
    outside = of(x, p)
    assert inside.probs.dtype == torch.float32
    assert torch.equal(inside.gates, outside.gates)
    assert of(x.bfloat16(), p).logits.dtype == torch.float32


def test_padding_is_not_routed():
    valid = torch.arange(40) < 25
    result = router()(tokens(), p, valid)
    assert torch.equal(result.counts > 0, valid)
    assert torch.equal(result.gates[valid], router()(tokens(), p).gates[valid])
    assert not result.gates[~valid].any()


def test_float16_router_is_warned_about():
    with pytest.warns(UserWarning, match="float16"):
        router().half()(tokens().half(), p)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"mode": "top_p"}, "'top_p' is unknown"),
        ({"norm_axis": "batch"}, "norm_axis='batch'"),
        ({"mode": "topk"}, "needs k"),
        ({"k": 2}, "no other mode takes it"),
        ({"mode": "topk", "k": 9}, "k=9"),
        ({"k_max": 0}, "k_max=0"),
        ({"mode": "topk", "k": 2, "k_max": 3}, "no k_max"),
        ({"theta_init": 0.0}, "theta_init"),
        ({"init_std": 0.0}, "init_std"),
    ],
)
def test_bad_settings(settings, words):
    with pytest.raises(ValueError, match=words):
        router(**settings)


def test_bad_use():
    with pytest.raises(ValueError, match="at least 2 experts"):
        TopPRouter(16, 1)
    with pytest.raises(ValueError, match="takes no threshold"):
        router(mode="topk", k=2)(tokens(), p)
    with pytest.raises(ValueError, match="needs the threshold"):
        router()(tokens())

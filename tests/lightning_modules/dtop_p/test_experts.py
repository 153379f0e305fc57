import pytest
import torch
from torch import Tensor
from torch.nn import functional

from lightning_modules.dtop_p.experts import Experts, chosen_pairs, fixed_pairs
from lightning_modules.dtop_p.selection import gate_weights, top_p_mask


def experts(dispatch: str = "dense", activation: str = "swiglu", **settings) -> Experts:
    torch.manual_seed(0)
    return Experts(8, 16, 6, activation, dispatch, most_experts=4, init_std=0.3, **settings)


def routed(tokens: int) -> tuple[Tensor, Tensor, Tensor]:
    """Tokens, mask and gates; the third expert gets nothing."""
    generator = torch.Generator().manual_seed(0)
    x, logits = torch.randn(tokens, 8, generator=generator), torch.randn(tokens, 6, generator=generator)
    logits[:, 2] = -50.0
    probs = logits.softmax(-1)
    mask = top_p_mask(probs, 0.8, k_max=4)
    return x, mask, gate_weights(probs, mask)


def by_hand(of: Experts, x: Tensor, mask: Tensor, gates: Tensor) -> Tensor:
    rows = []
    for t in range(len(x)):
        total = torch.zeros(8)
        for i in mask[t].nonzero().flatten().tolist():
            h = x[t] @ of.w_in[i]
            h = functional.silu(h[:16]) * h[16:] if h.numel() == 32 else functional.gelu(h)
            total = total + gates[t, i] * (h @ of.w_out[i])
        rows.append(total)
    return torch.stack(rows)


@pytest.mark.parametrize("activation", ["swiglu", "gelu"])
def test_by_hand(activation):
    of, (x, mask, gates) = experts(activation=activation), routed(5)
    expected = by_hand(of, x, mask, gates)
    torch.testing.assert_close(of(x, mask, gates), expected, rtol=1e-5, atol=1e-6)
    assert expected.abs().max() > 0.1


def run(dispatch: str, tokens: int, activation: str = "swiglu") -> list[Tensor]:
    of, (x, mask, gates) = experts(dispatch, activation), routed(tokens)
    x, gates = x.requires_grad_(), gates.requires_grad_()
    y = of(x, mask, gates)
    (y * torch.linspace(-1, 1, y.numel()).view_as(y)).sum().backward()
    return [y.detach(), x.grad, gates.grad.masked_fill(~mask, 0.0), of.w_in.grad, of.w_out.grad]


@pytest.mark.parametrize("tokens", [1, 50])
@pytest.mark.parametrize("dispatch", ["grouped", "loop", "sort"])
@pytest.mark.parametrize("activation", ["swiglu", "gelu"])
def test_dispatches_agree(dispatch, tokens, activation):
    expected = run("dense", tokens, activation)
    for value, right in zip(run(dispatch, tokens, activation), expected, strict=True):
        torch.testing.assert_close(value, right, rtol=1e-5, atol=1e-5)
    mask = routed(tokens)[1]
    assert not mask[:, 2].any()
    assert expected[3].abs().amax((1, 2))[2] == 0


def test_pairs_by_hand():
    mask = torch.tensor([[True, False, True], [False, False, True]])
    gates = torch.tensor([[0.25, 0.0, 0.75], [0.0, 0.0, 1.0]])
    pairs = chosen_pairs(mask, gates)
    assert pairs.token.tolist() == [0, 0, 1]
    assert pairs.gate.tolist() == [0.25, 0.75, 1.0]
    assert pairs.end.tolist() == [1, 1, 3]
    assert pairs.end.dtype == torch.int32
    fixed = fixed_pairs(mask, gates, 2)
    assert fixed.token.tolist() == [0, 0, 1, 1]
    assert fixed.gate.tolist() == [0.25, 0.75, 1.0, 0.0]
    assert fixed.end.tolist() == [1, 1, 4]


@pytest.mark.parametrize("dispatch", ["grouped", "loop", "dense", "sort"])
def test_no_token_has_an_expert(dispatch):
    of, (x, mask, gates) = experts(dispatch), routed(7)
    y = of(x.requires_grad_(), torch.zeros_like(mask), torch.zeros_like(gates))
    y.sum().backward()
    assert not y.any()
    assert not of.w_in.grad.any()
    assert not of.w_out.grad.any()


@pytest.mark.parametrize("dispatch", ["grouped", "loop", "dense", "sort"])
def test_autocast_sets_the_precision(dispatch):
    of, routing = experts(dispatch), routed(20)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y = of(*routing)
    assert y.dtype == torch.bfloat16
    torch.testing.assert_close(y.float(), of(*routing), rtol=0.05, atol=0.05)
    assert of.bfloat16()(*routing).dtype == torch.bfloat16


def test_initial_weights():
    torch.manual_seed(0)
    of = Experts(64, 64, 8, init_std=0.02, residual_scale=0.25)
    assert of.w_in.std().item() == pytest.approx(0.02, rel=0.02)
    assert of.w_out.std().item() == pytest.approx(0.005, rel=0.02)


def test_old_torch_loops_after_one_warning(monkeypatch):
    monkeypatch.delattr(functional, "grouped_mm")
    with pytest.warns(UserWarning, match="grouped_mm"):
        of = experts("grouped")
    torch.testing.assert_close(of(*routed(20)), experts("dense")(*routed(20)), rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(experts("sort")(*routed(20)), experts("dense")(*routed(20)), rtol=1e-5, atol=1e-6)


def test_bad_settings():
    with pytest.raises(ValueError, match="'relu' of the experts"):
        experts(activation="relu")
    with pytest.raises(ValueError, match="'scatter' of the experts"):
        experts("scatter")
    with pytest.raises(ValueError, match="needs a largest number.*k_max"):
        Experts(8, 16, 6, dispatch="sort")


def test_widths_that_grouped_products_cannot_take():
    of, (x, mask, gates) = Experts(8, 6, 6), routed(5)
    with pytest.raises(ValueError, match="6 numbers of torch.float32.*multiple of 8, or dispatch='loop'"):
        of(x, mask, gates)
    assert Experts(8, 6, 6, dispatch="loop")(x, mask, gates).shape == x.shape

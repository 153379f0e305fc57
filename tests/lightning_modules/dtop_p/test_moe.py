import pytest
import torch
from torch import Tensor
from torch.nn import functional
from torch.utils.checkpoint import checkpoint, set_checkpoint_early_stop

from lightning_modules.dtop_p.controller import SparsityController
from lightning_modules.dtop_p.losses import assignment_share, load_balance_loss
from lightning_modules.dtop_p.moe import MoEFeedForward

p = torch.tensor(0.6)


def layer(mode: str = "dtopp", dispatch: str = "grouped", **settings) -> MoEFeedForward:
    torch.manual_seed(0)
    return MoEFeedForward(16, 8, 8, mode, dispatch=dispatch, init_std=0.3, **settings)


def tokens(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, 16, generator=torch.Generator().manual_seed(seed))


def every_expert(of: MoEFeedForward, x_Sd: Tensor) -> Tensor:
    """Return E_i(x_t), ``[S, N, d]``."""
    a, b = torch.einsum("sd,ndf->snf", x_Sd, of.experts.w_in).chunk(2, dim=-1)
    return torch.einsum("snf,nfd->snd", functional.silu(a) * b, of.experts.w_out)


def test_all_mass_is_the_softmax_weighted_mixture():
    of, x = layer(), tokens(30)
    z = x @ of.router.weight.T
    u = (z - z.mean(-1, keepdim=True)) / z.std(-1, correction=0, keepdim=True)
    y, aux = of(x, torch.tensor(1.0))
    torch.testing.assert_close(y, torch.einsum("snd,sn->sd", every_expert(of, x), u.softmax(-1)), rtol=1e-4, atol=1e-5)
    assert (aux.counts == 8).all()
    assert y.abs().max() > 0.1


@pytest.mark.parametrize("threshold", [0.1, 0.5, 0.9, 1.0])
def test_equal_experts_are_one(threshold):
    of, x = layer(), tokens(30)
    with torch.no_grad():
        of.experts.w_in.copy_(of.experts.w_in[:1].expand(8, -1, -1))
        of.experts.w_out.copy_(of.experts.w_out[:1].expand(8, -1, -1))
    torch.testing.assert_close(of(x, torch.tensor(threshold))[0], every_expert(of, x)[:, 0], rtol=1e-5, atol=1e-6)


def test_peaked_router_is_top_1():
    of, x = layer(theta_init=200.0), tokens(30)
    y, aux = of(x, p)
    torch.testing.assert_close(y, layer("topk", k=1)(x)[0], rtol=0, atol=1e-6)
    assert (aux.counts == 1).all()


@pytest.mark.parametrize("k", [1, 2, 4])
def test_straddled_rows_are_top_k(k):
    """Where the threshold lies between the masses of k-1 and k experts for every token, top-p is top-k, gradients included."""
    by_mass, by_number = layer("topp").double(), layer("topk", k=k).double()
    x = tokens(400).double()
    mass = by_mass.router(x, 1.0).probs.sort(-1, descending=True).values.cumsum(-1)
    below = mass[:, k - 2] if k > 1 else torch.zeros(len(x))
    threshold = ((below + mass[:, k - 1]) / 2).median().detach()
    x = x[(below < threshold - 1e-5) & (mass[:, k - 1] > threshold + 1e-5)]
    assert len(x) > 20
    outputs = []
    for of, arguments in ((by_mass, (threshold,)), (by_number, ())):
        y, aux = of(x, *arguments)
        assert (aux.counts == k).all()
        y.square().sum().backward()
        outputs.append([y, *(parameter.grad for parameter in of.parameters())])
    for value, right in zip(*outputs, strict=True):
        torch.testing.assert_close(value, right, rtol=0, atol=1e-6)


@pytest.mark.parametrize("mode", ["dtopp", "topp", "topk"])
def test_permuted_experts_change_nothing(mode):
    of, x, order = layer(mode, k=3 if mode == "topk" else None), tokens(4, 10), torch.tensor([3, 1, 7, 0, 5, 2, 6, 4])
    arguments = () if mode == "topk" else (p,)
    y, aux = of(x, *arguments)
    with torch.no_grad():
        for parameter in (of.router.weight, of.experts.w_in, of.experts.w_out):
            parameter.copy_(parameter[order])
    permuted, permuted_aux = of(x, *arguments)
    torch.testing.assert_close(permuted, y, rtol=0, atol=1e-6)
    torch.testing.assert_close(permuted_aux.load, aux.load[order])
    torch.testing.assert_close(permuted_aux.load_balance, aux.load_balance)


def test_no_token_sees_another():
    of, x = layer(), tokens(3, 12)
    y, _ = of(x, p)
    changed = x.clone()
    changed[:, 7:] = tokens(3, 5, seed=1)
    after, _ = of(changed, p)
    torch.testing.assert_close(after[:, :7], y[:, :7], rtol=0, atol=1e-6)
    assert (after[:, 7:] - y[:, 7:]).abs().amax(-1).min() > 1e-3
    torch.testing.assert_close(of(x[1:2, 3:5], p)[0], y[1:2, 3:5], rtol=0, atol=1e-6)


def test_layer_axis_sees_others():
    of, x = layer(norm_axis="layer"), tokens(3, 12)
    changed = x.clone()
    changed[:, 7:] *= 3
    assert (of(changed, p)[0][:, :7] - of(x, p)[0][:, :7]).abs().max() > 1e-3


@pytest.mark.parametrize("dispatch", ["grouped", "loop", "dense", "sort"])
def test_padding(dispatch):
    of, x = layer(dispatch=dispatch, k_max=5), tokens(4, 10)
    valid = torch.arange(10) < torch.tensor([[10], [6], [1], [0]])
    y, aux = of(x, p, valid)
    alone, alone_aux = of(x[valid], p)
    torch.testing.assert_close(y[valid], alone, rtol=0, atol=1e-6)
    assert not y[~valid].any()
    assert aux.counts.shape == (4, 10)
    assert torch.equal(aux.counts[valid], alone_aux.counts)
    assert not aux.counts[~valid].any()
    for name in ("load", "load_balance", "entropy", "router_z"):
        torch.testing.assert_close(getattr(aux, name), getattr(alone_aux, name))


def test_nothing_but_padding():
    of, x, nothing = layer(), tokens(2, 5), torch.zeros(2, 5, dtype=torch.bool)
    y, aux = of(x, p, nothing)
    (y.sum() + aux.load_balance + aux.entropy + aux.router_z).backward()
    assert not y.any()
    assert [aux.load_balance.item(), aux.entropy.item(), aux.router_z.item()] == [0, 0, 0]
    assert all(parameter.grad is not None and not parameter.grad.any() for parameter in of.parameters())
    controller = SparsityController(8, 2, 1)
    controller.observe(0, aux.counts, nothing)
    assert not controller.step().updated


def test_losses_are_those_of_the_routing():
    of, x = layer(), tokens(4, 10)
    _, aux = of(x, p)
    routing = of.router(x.flatten(0, 1), p)
    share = assignment_share(routing.mask)
    torch.testing.assert_close(aux.load, share)
    torch.testing.assert_close(aux.load_balance, load_balance_loss(routing.probs, share))
    torch.testing.assert_close(aux.entropy, torch.distributions.Categorical(routing.probs).entropy().mean(), rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(aux.router_z, (x.flatten(0, 1) @ of.router.weight.T).logsumexp(-1).square().mean())
    assert torch.equal(aux.counts.flatten(), routing.counts)


def test_activation_checkpointing_counts_the_same():
    """The recomputation observes twice, numerator and denominator alike."""
    of, x = layer(), tokens(4, 10).requires_grad_()
    controllers = SparsityController(8, 2, 1), SparsityController(8, 2, 1)
    gradients = []
    for controller, recomputed in zip(controllers, (False, True), strict=True):

        def block(x: Tensor, controller: SparsityController = controller) -> Tensor:
            y, aux = of(x, controller.current(0))
            controller.observe(0, aux.counts)
            return y

        with set_checkpoint_early_stop(False):
            y = checkpoint(block, x, use_reentrant=False) if recomputed else block(x)
            gradients.append(torch.autograd.grad(y.square().sum(), [x, *of.parameters()]))
    assert controllers[1]._seen_2L[1] == 2 * controllers[0]._seen_2L[1]
    first, second = (controller.step() for controller in controllers)
    assert first.active == second.active != 0
    assert first.p == second.p
    for plain, recomputed in zip(*gradients, strict=True):
        assert torch.equal(plain, recomputed)


def test_aux_losses_reach_the_layer_through_a_checkpoint():
    of, x = layer(), tokens(4, 10)
    y, aux = checkpoint(of, x, p, use_reentrant=False)
    (y.sum() + aux.load_balance + aux.entropy + aux.router_z).backward()
    assert of.router.weight.grad.abs().max() > 1e-3


def test_controller_and_layer_lock_to_the_target():
    of, controller = layer(), SparsityController(8, 2, 1)
    for step in range(40):
        _, aux = of(tokens(64, seed=step), controller.current(0))
        controller.observe(0, aux.counts)
        info = controller.step()
    assert info.active.item() == pytest.approx(2, rel=0.1)


def test_not_a_number_names_the_layer():
    of, x = layer(name="layer 3"), tokens(4, 10)
    x[1, 2] = float("nan")
    with pytest.raises(ValueError, match="router of layer 3 got logits that are not finite"):
        of(x, p)
    valid = torch.ones(4, 10, dtype=torch.bool)
    valid[1, 2] = False
    assert of(x, p, valid)[0].isfinite().all()


def test_bad_use():
    with pytest.raises(ValueError, match=r"valid of block 1 has shape \[3\], its tokens \[4, 10\]"):
        layer(name="block 1")(tokens(4, 10), p, torch.ones(3))
    with pytest.raises(ValueError, match="takes no threshold"):
        layer("topk", k=2)(tokens(4), p)
    with pytest.raises(ValueError, match="k_max"):
        layer(dispatch="sort")

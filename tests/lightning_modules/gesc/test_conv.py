import copy
import math
import warnings

import pytest
import torch
from gauge_graphs import random_angles, random_graph, random_states
from torch_geometric.utils import scatter

from lightning_modules.gesc.complex_layers import as_complex
from lightning_modules.gesc.conv import GESCConv
from lightning_modules.gesc.gauge import gauge_transform
from lightning_modules.gesc.interference import parallel_part
from lightning_modules.gesc.sorted_edges import SortedEdges

EDGE_INDEX, THETA = random_graph(duplicates=3, isolated=True)
BOTH = pytest.mark.parametrize("impl", ["fused", "reference"])


def drawn_conv(channels=4, heads=3, seed=0, **options):
    """A layer in double precision without dropout, whose bias of modReLU is not zero."""
    torch.manual_seed(seed)
    conv = GESCConv(channels, heads, **{"attn_dropout": 0.0, "gamma": 1.0, **options}).double()
    if options.get("act", True):
        torch.nn.init.normal_(conv.act.bias, std=0.3)
    return conv


def with_identities(**options):
    """One head of width 2 with W = Q = I."""
    conv = drawn_conv(2, 1, **{"gamma": 0.1, **options})
    identity = torch.stack([torch.eye(2), torch.zeros(2, 2)], dim=-1).double()
    with torch.no_grad():
        conv.weight.copy_(identity[None])
        conv.query.copy_(identity[None])
    return conv


def gathered(h):
    source, target = EDGE_INDEX
    return h[target], h[source]


def loop_update(conv, h, theta):
    """The update of each node, by loops over nodes and edges as the formulas read."""
    share = torch.sigmoid(conv.mix)
    update = torch.zeros_like(h)
    for i in range(len(h)):
        into = (EDGE_INDEX[1] == i).nonzero()[:, 0]
        for weight, query in zip(as_complex(conv.weight), as_complex(conv.query), strict=True):
            messages, logits = [], []
            for e in into.tolist():
                h_j = h[EDGE_INDEX[0, e]]
                transport = torch.exp(1j * theta[e])
                t = transport * (weight @ h_j)
                r = t - conv.sic * h[i] * torch.vdot(h[i], t) / torch.vdot(h[i], h[i])
                logits.append(conv.gamma * torch.vdot(query @ h[i], r).abs() / math.sqrt(h.shape[1]))
                c = torch.vdot(h[i], transport * h_j).real / (h[i].norm() * h_j.norm())
                k = (1 + torch.sign(c)) / 2 if conv.gate == "hard" else torch.sigmoid(c)
                messages.append(k * (share * r + (1 - share) * t))
            update[i] += (torch.softmax(torch.stack(logits), 0)[:, None] * torch.stack(messages)).sum(0)
    return update


@BOTH
@pytest.mark.parametrize("gate", ["hard", "soft"])
def test_equals_loops_over_nodes_and_edges(impl, gate):
    conv, h = drawn_conv(impl=impl, gate=gate, norm=None, act=False, sic=1.3), random_states(12, 4)
    assert (conv(h, EDGE_INDEX, THETA) - h - loop_update(conv, h, THETA)).abs().max() < 1e-10


@BOTH
@pytest.mark.parametrize("sic", [0.0, 1.0, 1.5])
@pytest.mark.parametrize("gate", ["hard", "soft", "none"])
@pytest.mark.parametrize("norm", ["gauge", None])
def test_is_gauge_equivariant(impl, sic, gate, norm):
    conv, h, phi = drawn_conv(impl=impl, sic=sic, gate=gate, norm=norm), random_states(12, 4), random_angles(12)
    turned, theta = gauge_transform(h, THETA, EDGE_INDEX, phi)
    expected = torch.exp(1j * phi)[:, None] * conv(h, EDGE_INDEX, THETA)
    assert (conv(turned, EDGE_INDEX, theta) - expected).abs().max() < 1e-10
    assert (conv(turned, EDGE_INDEX, THETA) - expected).abs().max() > 1e-2


@BOTH
@pytest.mark.parametrize("options", [{"gate": "real"}, {"norm": "split"}])
def test_the_parts_of_the_program_are_not_equivariant(impl, options):
    conv, h, phi = drawn_conv(impl=impl, **options), random_states(12, 4), random_angles(12)
    turned, theta = gauge_transform(h, THETA, EDGE_INDEX, phi)
    assert (conv(turned, EDGE_INDEX, theta) - torch.exp(1j * phi)[:, None] * conv(h, EDGE_INDEX, THETA)).abs().max() > 1e-2


@BOTH
def test_a_pure_gauge_is_the_trivial_connection(impl):
    conv, h, phi = drawn_conv(impl=impl), random_states(12, 4), random_angles(12)
    turned, pure = gauge_transform(h, torch.zeros_like(THETA), EDGE_INDEX, phi)
    assert (conv(turned, EDGE_INDEX, pure) - torch.exp(1j * phi)[:, None] * conv(h, EDGE_INDEX)).abs().max() < 1e-10


def test_full_cancellation_leaves_nothing_along_the_receiver():
    conv = drawn_conv(sic=1.0)
    torch.nn.init.constant_(conv.mix, 100.0)
    h_i, h_j = gathered(random_states(12, 4))
    terms = conv.edge_terms(h_i, h_j, THETA)
    assert (h_i.conj().unsqueeze(1) * terms.mixed).sum(-1).abs().max() < 1e-10
    assert (h_i.conj().unsqueeze(1) * terms.transported).sum(-1).abs().min() > 1e-3


@pytest.mark.parametrize("sic", [0.4, 1.0, 1.5, 2.0])
def test_the_parallel_part_contracts_by_one_minus_eta_and_the_rest_stays(sic):
    conv = drawn_conv(sic=sic)
    h_i, h_j = (h.unsqueeze(1) for h in gathered(random_states(12, 4)))
    terms = conv.edge_terms(h_i.squeeze(1), h_j.squeeze(1), THETA)
    eta = conv.eta.item()
    assert eta == pytest.approx(sic / (1 + math.exp(-0.5)))
    along_b, along_t = parallel_part(h_i, terms.mixed), parallel_part(h_i, terms.transported)
    assert (along_b.norm(dim=-1) - abs(1 - eta) * along_t.norm(dim=-1)).abs().max() < 1e-10
    assert ((terms.mixed - along_b) - (terms.transported - along_t)).abs().max() < 1e-10


def test_without_cancellation_the_message_is_the_transported_state():
    terms = drawn_conv(sic=0.0).edge_terms(*gathered(random_states(12, 4)), THETA)
    assert (terms.mixed - terms.transported).abs().max() < 1e-14
    assert torch.equal(terms.cancelled, terms.transported)


def test_bound_of_the_update_on_random_draws():
    for draw in range(100):
        conv = drawn_conv(seed=draw, sic=2 * draw / 99, norm=None, act=False)
        torch.nn.init.constant_(conv.mix, draw % 7 - 3.0)
        h = random_states(12, 4, seed=draw)
        factor = max(1.0, abs(1 - conv.eta.item()))
        terms = conv.edge_terms(*gathered(h), THETA)
        assert (terms.mixed.norm(dim=-1) <= factor * terms.transported.norm(dim=-1) + 1e-10).all()
        spectral = torch.linalg.matrix_norm(as_complex(conv.weight), ord=2).sum()
        bound = h.norm(dim=1) + factor * spectral * h.norm(dim=1).max()
        assert (conv(h, EDGE_INDEX, THETA).norm(dim=1) <= bound).all()


@BOTH
def test_in_one_dimension_everything_is_cancelled(impl):
    conv = drawn_conv(1, sic=1.0, norm=None, act=False, impl=impl)
    torch.nn.init.constant_(conv.mix, 100.0)
    h = random_states(12, 1)
    assert (conv(h, EDGE_INDEX, THETA) - h).abs().max() < 1e-10


@pytest.mark.parametrize(
    ("theta", "sic", "t", "r", "logit", "gate"),
    [
        (0.0, 1.0, (1, 1j), (0, 1j), 0.0, 1.0),
        (math.pi / 2, 1.0, (1j, -1), (0, -1), 0.0, 0.5),
        (math.pi, 1.0, (-1, -1j), (0, -1j), 0.0, 0.0),
        (0.0, 1.5, (1, 1j), (-0.5, 1j), 0.05 / math.sqrt(2), 1.0),
    ],
)
def test_one_edge_by_hand(theta, sic, t, r, logit, gate):
    h_i, h_j = torch.tensor([[1, 0]], dtype=torch.complex128), torch.tensor([[1, 1j]], dtype=torch.complex128)
    terms = with_identities(sic=sic).edge_terms(h_i, h_j, torch.tensor([theta], dtype=torch.float64))
    assert (terms.transported - torch.tensor(t)).abs().max() < 1e-12
    assert (terms.cancelled - torch.tensor(r)).abs().max() < 1e-12
    assert terms.logit.item() == pytest.approx(logit, abs=1e-12)
    assert terms.gate.item() == gate


@BOTH
def test_one_edge_by_hand_in_the_layer(impl):
    conv = with_identities(sic=1.5, norm=None, act=False, impl=impl)
    h = torch.tensor([[1, 0], [1, 1j]], dtype=torch.complex128)
    out = conv(h, torch.tensor([[1], [0]]))
    eta = 1.5 / (1 + math.exp(-0.5))
    expected = torch.tensor([[2 - eta, 1j], [1, 1j]], dtype=torch.complex128)
    assert (out - expected).abs().max() < 1e-12


@pytest.mark.parametrize("gate", ["hard", "soft", "none", "real"])
@pytest.mark.parametrize("phased", [True, False])
@pytest.mark.parametrize("norm", ["gauge", "split"])
def test_fused_equals_reference_in_values_and_gradients(gate, phased, norm):
    fused = drawn_conv(5, 3, sic=1.5, gate=gate, norm=norm).float()
    reference = copy.deepcopy(fused)
    reference.impl = "reference"
    shuffle = torch.randperm(len(THETA), generator=torch.Generator().manual_seed(0))
    edge_index, weight = EDGE_INDEX[:, shuffle], random_states(12, 5, seed=1, dtype=torch.complex64)
    results = []
    for conv in (fused, reference):
        h = random_states(12, 5, dtype=torch.complex64).requires_grad_()
        theta = THETA[shuffle].float().requires_grad_() if phased else None
        out, alpha = conv(h, edge_index, theta, return_attention=True)
        (out * weight).real.sum().backward()
        gradients = [h.grad, *(parameter.grad for parameter in conv.parameters()), *([theta.grad] if phased else [])]
        results.append([out.detach(), alpha, *gradients])
    for ours, expected in zip(*results, strict=True):
        assert ours.shape == expected.shape
        assert (ours - expected).abs().max() < 1e-5 * expected.abs().max().clamp_min(1)
        assert expected.abs().max() > 1e-3


@BOTH
@pytest.mark.parametrize("phased", [True, False])
def test_gradcheck(impl, phased):
    conv = drawn_conv(3, 2, sic=1.5, gate="soft", impl=impl)
    edge_index, theta = random_graph(4, pairs=5, duplicates=1)
    names, values = zip(*conv.named_parameters(), strict=True)
    h = random_states(4, 3).requires_grad_()

    def layer(h, theta, *values):
        return torch.func.functional_call(conv, dict(zip(names, values, strict=True)), (h, edge_index, theta))

    assert torch.autograd.gradcheck(layer, (h, theta.requires_grad_() if phased else None, *values))


@BOTH
@pytest.mark.parametrize("gate", ["hard", "soft"])
def test_gradients_are_finite_with_zero_states(impl, gate):
    conv = drawn_conv(impl=impl, gate=gate)
    h = random_states(12, 4)
    h[[0, 11]] = 0
    theta = THETA.clone().requires_grad_()
    out = conv(h.requires_grad_(), EDGE_INDEX, theta)
    out.abs().sum().backward()
    for tensor in (out, h.grad, theta.grad, *(parameter.grad for parameter in conv.parameters())):
        assert tensor.isfinite().all()


@BOTH
def test_attention_sums_to_one_and_a_lone_node_attends_to_itself(impl):
    conv = drawn_conv(impl=impl, gamma=5.0, attn_dropout=0.5).eval()
    shuffle = torch.randperm(len(THETA), generator=torch.Generator().manual_seed(0))
    _, alpha = conv(random_states(12, 4), EDGE_INDEX[:, shuffle], THETA[shuffle], return_attention=True)
    assert alpha.shape == (len(THETA), 3)
    assert (scatter(alpha, EDGE_INDEX[1, shuffle], dim_size=12) - 1).abs().max() < 1e-12
    assert alpha[EDGE_INDEX[1, shuffle] == 11].eq(1).all()
    assert alpha.std() > 0.05


@BOTH
def test_attention_survives_large_logits(impl):
    conv = drawn_conv(impl=impl, gamma=1e4)
    out = conv(random_states(12, 4), EDGE_INDEX, THETA)
    assert out.isfinite().all()


@BOTH
def test_attention_dropout_drops_its_share_and_keeps_the_mean(impl):
    conv = drawn_conv(impl=impl, attn_dropout=0.4, norm=None, act=False, gate="none", sic=0.0)
    h, loops = random_states(2000, 4), torch.arange(2000).expand(2, -1)
    update = conv(h, loops) - h
    one_head = [h @ weight.t() / 0.6 for weight in as_complex(conv.weight)]
    coefficients = torch.linalg.lstsq(torch.stack(one_head, -1), update.unsqueeze(-1)).solution.squeeze(-1)
    kept = coefficients.abs().round()
    assert (coefficients - kept).abs().max() < 1e-6
    assert kept.mean().item() == pytest.approx(0.6, abs=0.03)
    assert (conv.eval()(h, loops) - h - 0.6 * sum(one_head)).abs().max() < 1e-10


@BOTH
def test_is_permutation_equivariant(impl):
    conv, h = drawn_conv(impl=impl), random_states(12, 4)
    generator = torch.Generator().manual_seed(0)
    relabel, shuffle = torch.randperm(12, generator=generator), torch.randperm(len(THETA), generator=generator)
    permuted = torch.empty_like(h)
    permuted[relabel] = h
    out = conv(permuted, relabel[EDGE_INDEX[:, shuffle]], THETA[shuffle])
    assert (out[relabel] - conv(h, EDGE_INDEX, THETA)).abs().max() < 1e-10


@BOTH
def test_real_states_stay_real_on_a_signed_graph(impl):
    conv, h = drawn_conv(impl=impl), random_states(12, 4).real.to(torch.complex128)
    with torch.no_grad():
        conv.weight[..., 1] = 0
        conv.query[..., 1] = 0
    signs = torch.pi * (THETA.abs() > 0.5).double()
    assert 0 < signs.count_nonzero() < len(signs)
    signed = conv(h, EDGE_INDEX, signs)
    assert signed.imag.abs().max() < 1e-12
    assert (signed - conv(h, EDGE_INDEX)).abs().max() > 0.1
    for theta in (None, torch.zeros_like(THETA)):
        assert not conv(h, EDGE_INDEX, theta).imag.any()


def test_edges_sorted_beforehand_give_the_same():
    conv, h = drawn_conv(), random_states(12, 4)
    shuffle = torch.randperm(len(THETA), generator=torch.Generator().manual_seed(0))
    edge_index, theta = EDGE_INDEX[:, shuffle], THETA[shuffle]
    assert torch.equal(conv(h, edge_index, theta, edges=SortedEdges.of(edge_index, 12)), conv(h, edge_index, theta))


@BOTH
def test_a_node_without_edges_keeps_its_state(impl):
    conv, h = drawn_conv(impl=impl, norm=None, act=False), random_states(3, 4)
    out = conv(h, torch.tensor([[0, 1], [1, 0]]))
    assert torch.equal(out[2], h[2])
    assert torch.equal(conv(h, torch.empty(2, 0, dtype=torch.long)), h)


def test_parameters_are_real():
    conv = GESCConv(6, heads=2)
    shapes = {name: tuple(parameter.shape) for name, parameter in conv.named_parameters()}
    assert shapes == {"weight": (2, 6, 6, 2), "query": (2, 6, 6, 2), "mix": (), "act.bias": (6,)}
    assert not any(parameter.is_complex() for parameter in conv.parameters())
    assert repr(conv) == "GESCConv(6, heads=2, sic=1.0, gate='hard', norm=GaugeNorm, impl='fused')"


def test_a_strength_outside_0_to_2_warns():
    for sic in (2.5, -0.1):
        with pytest.warns(UserWarning, match="parallel part grows instead of shrinking"):
            GESCConv(4, sic=sic)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        GESCConv(4, sic=2.0)


def test_bad_input_is_refused():
    conv, h = GESCConv(4), random_states(12, 4, dtype=torch.complex64)
    with pytest.raises(ValueError, match="needs complex states"):
        conv(h.real, EDGE_INDEX)
    with pytest.raises(ValueError, match="32-true or 64-true precision, the weight"):
        GESCConv(4).half()(h, EDGE_INDEX)
    with torch.autocast("cpu", torch.bfloat16), pytest.raises(ValueError, match="autocast is on"):
        conv(h, EDGE_INDEX)
    with pytest.raises(ValueError, match="phases in the order of edge_index"):
        conv(h, EDGE_INDEX, THETA[:-1].float())
    with pytest.raises(ValueError, match="shape .N, 4., got .12, 3."):
        conv(h[:, :3], EDGE_INDEX)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"gate": "sharp"}, "gate must be one of hard, soft, none, real"),
        ({"norm": "layer"}, "norm must be 'gauge', 'split' or None"),
        ({"impl": "fast"}, "impl must be 'fused' or 'reference'"),
        ({"attn_dropout": 1.0}, "attn_dropout must lie in"),
        ({"gamma": -1.0}, "gamma must not be negative"),
        ({"heads": 0}, "must be at least 1"),
    ],
)
def test_bad_options_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        GESCConv(4, **options)

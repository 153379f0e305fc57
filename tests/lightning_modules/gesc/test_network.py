import pytest
import torch
from gauge_graphs import random_angles, random_graph, random_states
from torch.nn import functional
from torch_geometric.data import Data

from lightning_modules.gesc.gauge import dirichlet_energy, gauge_transform, self_parallel_fraction
from lightning_modules.gesc.network import GESC

EDGE_INDEX, THETA = random_graph(duplicates=3, isolated=True)
COMPLEX = {"connection": "given", "complex_input": True, "bias": False, "readout": "modulus"}
SMALL = {"hidden": 6, "heads": 3, "layers": 3, "gamma": 1.0}


def complex_model(**options):
    torch.manual_seed(0)
    model = GESC(5, 4, **{**SMALL, **COMPLEX, **options}).double().eval()
    for name, parameter in model.named_parameters():
        if name.endswith("act.bias"):
            torch.nn.init.normal_(parameter, std=0.3)
    return model


def real_data(seed=0, dtype=torch.float32):
    x = torch.randn(12, 5, dtype=dtype, generator=torch.Generator().manual_seed(seed))
    return Data(x=x, edge_index=EDGE_INDEX, edge_phase=THETA.to(dtype))


def gauge_pair():
    """The same graph in two gauges, and the angle between them."""
    x, phi = random_states(12, 5), random_angles(12)
    turned, theta = gauge_transform(x, THETA, EDGE_INDEX, phi)
    rotation = torch.exp(1j * phi)[:, None]
    return Data(x=x, edge_index=EDGE_INDEX, edge_phase=THETA), Data(x=turned, edge_index=EDGE_INDEX, edge_phase=theta), rotation


def gauge_error(model):
    data, turned, rotation = gauge_pair()
    return max((a - rotation * b).abs().max() for a, b in zip(model.hidden(turned), model.hidden(data), strict=True))


@pytest.mark.parametrize("impl", ["fused", "reference"])
@pytest.mark.parametrize("gate", ["hard", "soft", "none"])
def test_hidden_states_turn_with_the_gauge_and_logits_stay(impl, gate):
    model = complex_model(impl=impl, gate=gate, sic=(1.5, 1.0, 0.0))
    assert gauge_error(model) < 1e-10
    data, turned, _ = gauge_pair()
    assert (model(turned) - model(data)).abs().max() < 1e-10
    untransformed = Data(x=turned.x, edge_index=EDGE_INDEX, edge_phase=THETA)
    assert (model(untransformed) - model(data)).abs().max() > 1e-2


def test_dropout_of_a_complex_input_takes_whole_entries():
    model = complex_model(dropout=0.5, attn_dropout=0.0, classifier_dropout=0.0).train()
    data, turned, _ = gauge_pair()
    logits = []
    for one in (data, turned):
        torch.manual_seed(1)
        logits.append(model(one))
    assert (logits[0] - logits[1]).abs().max() < 1e-10
    assert (logits[0] - model.eval()(data)).abs().max() > 1e-2


def test_the_preset_of_the_program_is_not_equivariant_unless_norm_and_gate_are_swapped():
    options = {**SMALL, **COMPLEX}
    torch.manual_seed(0)
    assert gauge_error(GESC.from_preset("official_code", 5, 4, **options).double().eval()) > 1e-2
    swapped = GESC.from_preset("official_code", 5, 4, **options, norm="gauge", gate="hard").double().eval()
    assert gauge_error(swapped) < 1e-10


def test_presets_differ_in_gate_norm_and_connection():
    paper, program = GESC.from_preset("paper", 5, 4), GESC.from_preset("official_code", 5, 4)
    kinds = [(model.convs[0].gate, type(model.convs[0].norm).__name__, model.connection.kind) for model in (paper, program)]
    assert kinds == [("hard", "GaugeNorm", "learned"), ("real", "SplitNorm", "trivial")]
    for model in (paper, program):
        assert [conv.sic for conv in model.convs] == [1.5, 0.0]
        assert [type(conv.act).__name__ for conv in model.convs] == ["ModReLU", "Identity"]
    with pytest.raises(ValueError, match="preset must be one of paper, official_code, got 'code'"):
        GESC.from_preset("code", 5, 4)


def test_number_of_parameters_for_texas():
    def count(model):
        return sum(parameter.numel() for parameter in model.parameters())

    assert count(GESC.from_preset("official_code", 1703, 5)) == 351_047
    assert count(GESC.from_preset("paper", 1703, 5)) == 351_047 + 2 * 16 * 1703 + 16
    assert not any(parameter.is_complex() for parameter in GESC(7, 3).parameters())


def test_skip_readout_and_classifier_are_composed_as_written():
    torch.manual_seed(0)
    model = GESC(5, 4, hidden=6, heads=2, skip=0.3, connection="given").double().eval()
    data = real_data(dtype=torch.float64)
    h0 = model.encoder(data.x)
    first = 0.7 * model.convs[0](h0, EDGE_INDEX, THETA) + 0.3 * h0
    second = 0.7 * model.convs[1](first, EDGE_INDEX, THETA) + 0.3 * h0
    for ours, expected in zip(model.hidden(data), (first, second), strict=True):
        assert (ours - expected).abs().max() < 1e-12
    both = torch.cat([first, second], 1)
    interleaved = torch.stack([both.real, both.imag], -1).reshape(12, -1)
    assert (model(data) - model.classifier(interleaved)).abs().max() < 1e-12
    model.jk, model.readout = "mean", "modulus"
    assert (model.read([first, second]) - ((first + second) / 2).abs()).abs().max() < 1e-12


def test_no_gradient_flows_through_the_skip():
    model = GESC(5, 4, hidden=6, heads=2, layers=1, skip=1.0, connection="trivial").eval()
    (state,) = model.hidden(real_data())
    state.abs().sum().backward()
    assert not model.encoder.weight.grad.any()


@pytest.mark.parametrize("options", [{}, {"jk": "mean"}, {"readout": "modulus"}, {"jk": "mean", "readout": "modulus"}])
@pytest.mark.parametrize("preset", ["paper", "official_code"])
def test_every_parameter_gets_a_gradient(preset, options):
    model = GESC.from_preset(preset, 5, 4, hidden=6, heads=2, **options)
    logits = model(real_data())
    assert logits.shape == (12, 4)
    logits.square().sum().backward()
    assert all(parameter.grad is not None and parameter.grad.isfinite().all() for parameter in model.parameters())


@pytest.mark.parametrize("impl", ["fused", "reference"])
def test_relabelling_nodes_permutes_the_logits(impl):
    torch.manual_seed(0)
    model, data = GESC(5, 4, hidden=6, impl=impl).eval(), real_data()
    torch.nn.init.normal_(model.connection.direction)
    generator = torch.Generator().manual_seed(0)
    relabel, shuffle = torch.randperm(12, generator=generator), torch.randperm(len(THETA), generator=generator)
    x = torch.empty_like(data.x)
    x[relabel] = data.x
    permuted = model(Data(x=x, edge_index=relabel[EDGE_INDEX[:, shuffle]]))
    assert (permuted[relabel] - model(data)).abs().max() < 1e-5
    permuted = model.double()(Data(x=x.double(), edge_index=relabel[EDGE_INDEX[:, shuffle]]))
    assert (permuted[relabel] - model(real_data(dtype=torch.float64).update({"x": data.x.double()}))).abs().max() < 1e-10


def test_a_learned_connection_starts_trivial_and_then_acts():
    torch.manual_seed(0)
    model, data = GESC(5, 4, hidden=6).eval(), real_data()
    learned = model(data)
    torch.nn.init.normal_(model.connection.direction)
    moved = model(data)
    model.connection.kind = "trivial"
    assert (model(data) - learned).abs().max() < 1e-5
    assert (model(data) - moved).abs().max() > 1e-3


def test_a_magnetic_connection_reads_the_direction():
    torch.manual_seed(0)
    model, data = GESC(5, 4, hidden=6, connection="magnetic", magnetic_q=0.1).double().eval(), real_data(dtype=torch.float64)
    data.edge_direction = THETA.sign()
    magnetic = model(data)
    model.connection.kind = "given"
    data.edge_phase = 0.2 * torch.pi * THETA.sign()
    assert (model(data) - magnetic).abs().max() < 1e-12
    model.connection.kind = "magnetic"
    del data.edge_direction
    with pytest.raises(ValueError, match=r"discarded; use a \*_directed set"):
        model(data)


def test_strengths_of_the_layers():
    def strengths(sic, layers):
        return [conv.sic for conv in GESC(5, 4, hidden=6, sic=sic, layers=layers).convs]

    assert strengths(1.0, 3) == [1.0, 1.0, 1.0]
    assert strengths([1.5, 0.0], 4) == [1.5, 0.0, 0.0, 0.0]
    assert strengths((1.5, 0.0), 1) == [1.5]
    with pytest.raises(ValueError, match="sic must be a number or a list of at least one"):
        strengths([], 1)


def test_diagnosis_agrees_with_the_measures_it_names():
    model = complex_model(sic=(1.5, 1.0, 0.0))
    data, turned, _ = gauge_pair()
    between = EDGE_INDEX[0] != EDGE_INDEX[1]
    layers, states = model.diagnose(data), model.hidden(data)
    inputs = [model.encoder(data.x), *states[:-1]]
    for layer, conv, h_in, h_out in zip(layers, model.convs, inputs, states, strict=True):
        h_j, h_i = h_in[EDGE_INDEX[:, between]]
        terms = conv.edge_terms(h_i, h_j, THETA[between])
        weight = torch.view_as_complex(conv.weight)
        assert (layer["parallel_fraction"] - self_parallel_fraction(h_in, weight, EDGE_INDEX)[between]).abs().max() < 1e-12
        product = (h_i.conj() * torch.exp(1j * THETA[between])[:, None] * h_j).sum(1) / (h_i.norm(dim=1) * h_j.norm(dim=1))
        assert (layer["alignment"] - product.real).abs().max() < 1e-10
        assert (torch.exp(1j * layer["angle"]) - product / product.abs()).abs().max() < 1e-10
        assert torch.equal(layer["phase"], THETA[between])
        assert layer["eta"].item() == pytest.approx(conv.sic * torch.sigmoid(torch.tensor(0.5)).item())
        assert layer["gate_share"].item() == pytest.approx(terms.gate.mean().item())
        assert layer["dirichlet_energy"].item() == pytest.approx(dirichlet_energy(h_out, EDGE_INDEX, THETA).item())
        assert all(not value.requires_grad for value in layer.values())
    for layer, other in zip(layers, model.diagnose(turned), strict=True):
        for name in ("parallel_fraction", "alignment", "angle", "gate_share", "dirichlet_energy"):
            assert (layer[name] - other[name]).abs().max() < 1e-10
    trivial = GESC.from_preset("official_code", 5, 4, hidden=6).eval().diagnose(real_data())
    assert not trivial[0]["phase"].any()


@pytest.mark.parametrize("preset", ["paper", "official_code"])
def test_overfits_a_small_graph(preset):
    torch.manual_seed(0)
    edge_index, _ = random_graph(20, pairs=40)
    data, y = Data(x=torch.randn(20, 8), edge_index=edge_index), torch.randint(0, 3, (20,))
    options = {"dropout": 0.0, "attn_dropout": 0.0, "classifier_dropout": 0.0}
    model = GESC.from_preset(preset, 8, 3, hidden=16, heads=2, **options)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    for _ in range(200):
        logits = model(data)
        if (logits.argmax(1) == y).all():
            return
        optimizer.zero_grad()
        functional.cross_entropy(logits, y).backward()
        optimizer.step()
    pytest.fail("200 steps did not reach full accuracy on 20 nodes")


def test_complex_input_that_would_break_the_gauge_is_refused():
    match = "would break gauge equivariance; set bias=False, readout='modulus'"
    for wrong in ({"bias": True}, {"readout": "real_imag"}):
        with pytest.raises(ValueError, match=match):
            GESC(5, 4, **{**COMPLEX, **wrong})
    with pytest.raises(ValueError, match="must be real to be gauge-invariant"):
        GESC(5, 4, **{**COMPLEX, "connection": "learned"})
    data = Data(x=random_states(12, 5, dtype=torch.complex64), edge_index=EDGE_INDEX, edge_phase=THETA.float())
    with pytest.raises(ValueError, match=match):
        GESC(5, 4, connection="given")(data)


def test_half_precision_is_refused():
    model, data = GESC(5, 4, hidden=6), real_data()
    with torch.autocast("cpu", torch.bfloat16), pytest.raises(ValueError, match="32-true or 64-true"):
        model(data)
    with pytest.raises(ValueError, match="32-true or 64-true precision, x is torch.bfloat16"):
        model(Data(x=data.x.bfloat16(), edge_index=EDGE_INDEX))
    with pytest.raises(ValueError, match="32-true or 64-true"):
        model.half()(data)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"readout": "phase"}, "readout must be"),
        ({"jk": "max"}, "jk must be"),
        ({"skip": 1.5}, "skip must lie in"),
        ({"layers": 0}, "layers must be at least 1"),
        ({"connection": "spin"}, "connection must be one of"),
    ],
)
def test_bad_options_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        GESC(5, 4, **options)

import copy
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, distributed

transformers = pytest.importorskip("transformers", minversion="5")

from lightning_modules.dtop_p.controller import SparsityController  # noqa: E402
from lightning_modules.dtop_p.convert import DTopPRouting, DTopPSparseBlock, convert_topk_to_dtopp  # noqa: E402
from lightning_modules.dtop_p.fine_tune_module import MoEFineTuneModule  # noqa: E402

V, N, K, L = 61, 8, 2, 2
SMALL = {
    **{"vocab_size": V, "hidden_size": 32, "intermediate_size": 16, "num_hidden_layers": L, "num_attention_heads": 4},
    **{"num_experts_per_tok": K, "pad_token_id": None, "bos_token_id": None, "eos_token_id": None},
}
FAMILIES = ("olmoe", "olmoe_renormalised", "mixtral")


def model(family: str = "olmoe") -> Any:
    torch.manual_seed(0)
    if family == "mixtral":
        network = transformers.MixtralForCausalLM(transformers.MixtralConfig(num_local_experts=N, num_key_value_heads=2, **SMALL))
    else:
        config = transformers.OlmoeConfig(num_experts=N, norm_topk_prob=family == "olmoe_renormalised", **SMALL)
        network = transformers.OlmoeForCausalLM(config)
    for layer in network.model.layers:
        torch.nn.init.normal_(layer.mlp.gate.weight, std=0.5)  # untrained routers are all but indifferent
    return network


def tokens(rows: int = 4, length: int = 12, seed: int = 0) -> Tensor:
    return torch.randint(0, V, (rows, length), generator=torch.Generator().manual_seed(seed))


def steep(network: Any) -> Any:
    """Give tokens a large first coordinate of either sign, by which routers like experts 0 and 1, or 6 and 7, about equally."""
    embedding = network.model.embed_tokens.weight.data
    embedding[:, 0] = 5.0
    embedding[::2, 0] = -5.0
    for layer in network.model.layers:
        layer.mlp.gate.weight.data *= 0.04
        layer.mlp.gate.weight.data[:, 0] = torch.tensor([0.60, 0.58, 0, 0, 0, 0, -0.58, -0.60])
    return network


@pytest.mark.parametrize("family", FAMILIES)
def test_it_is_the_original_where_p_is_between_the_first_and_the_second_expert(family: str):
    original = steep(model(family)).eval()
    converted = copy.deepcopy(original)
    probs = torch.cat([layer.softmax(-1) for layer in original(tokens(), output_router_logits=True).router_logits])
    best_SN = probs.sort(dim=-1, descending=True).values
    first, both = best_SN[:, 0].max().item(), best_SN[:, :2].sum(dim=-1).min().item()
    assert first < both - 0.01, "there is a p that chooses two experts for every token"
    dtopp = convert_topk_to_dtopp(converted, drn=False, p_init=(first + both) / 2)
    torch.testing.assert_close(converted(tokens()).logits, original(tokens()).logits, atol=1e-5, rtol=1e-5)
    assert all((told.counts == K).all() and (told.load > 0.01).sum() == 4 for told in dtopp.told)
    loss, expected = (network(tokens(), labels=tokens()).loss for network in (converted, original))
    loss.backward()
    expected.backward()
    gradients = {name: parameter.grad for name, parameter in converted.named_parameters()}
    for name, parameter in original.named_parameters():
        torch.testing.assert_close(gradients[name], parameter.grad, atol=1e-5, rtol=1e-4, msg=name)


def test_fewer_experts_are_another_function():
    """The comparison above can fail."""
    original = steep(model()).eval()
    converted = copy.deepcopy(original)
    convert_topk_to_dtopp(converted, drn=False, p_init=0.01)
    assert (converted(tokens()).logits - original(tokens()).logits).abs().max() > 1e-4


@pytest.mark.parametrize("family", FAMILIES)
def test_the_parameters_are_those_of_the_model(family: str):
    network = model(family)
    before = dict(network.named_parameters())
    convert_topk_to_dtopp(network)
    after = dict(network.named_parameters())
    assert all(after[name] is parameter for name, parameter in before.items())
    assert after.keys() - before.keys() == {f"model.layers.{layer}.mlp.gate.theta" for layer in range(L)}
    assert {name for name in network.state_dict() if "controller" in name} == {
        f"dtopp_controller.{name}" for name in ("p", "p0", "integral", "target", "experts", "num_updates")
    }


def test_gates_of_standardised_logits_by_hand():
    network = model("mixtral").eval()
    dtopp = convert_topk_to_dtopp(network, theta_init=2.0, p_init=0.6)
    block = dtopp.layers[0]
    x_Sd = torch.randn(5, 32, generator=torch.Generator().manual_seed(1))
    y_Sd = block(x_Sd.unsqueeze(0)).squeeze(0)
    for x, y in zip(x_Sd, y_Sd, strict=True):
        z = block.gate.weight @ x
        P = torch.softmax(2 * (z - z.mean()) / (z.std(correction=0) + 1e-6), -1)
        order = P.argsort(descending=True)
        count = next(j for j in range(1, N + 1) if P[order[:j]].sum() >= 0.6)
        expected = torch.zeros(32)
        for i in order[:count]:
            gate, up = (block.experts.gate_up_proj[i] @ x).chunk(2)
            expected += P[i] / P[order[:count]].sum() * (block.experts.down_proj[i] @ (torch.nn.functional.silu(gate) * up))
        torch.testing.assert_close(y, expected, atol=1e-6, rtol=1e-4)


@pytest.mark.parametrize("family", ["olmoe", "mixtral"])
@pytest.mark.parametrize("scope", ["global", "layer"])
def test_the_controller_reaches_its_target(family: str, scope: str):
    network = model(family).train()
    target = 3.0 if scope == "global" else [2.0, 4.0]
    dtopp = convert_topk_to_dtopp(network, target, ki=0.3, p_init=0.2, scope=scope)
    optimizer = torch.optim.AdamW(network.parameters(), lr=1e-3)
    active = []
    for step in range(25):
        loss = network(tokens(8, 24, step), labels=tokens(8, 24, step)).loss
        (loss + 1e-2 * torch.stack([told.load_balance for told in dtopp.told]).mean()).backward()
        active.append(dtopp.step().active_L)
        optimizer.step()
        optimizer.zero_grad()
    assert active[0].mean() < 2, "it began elsewhere"
    settled = torch.stack(active[-8:]).mean(dim=0)
    if scope == "global":
        assert settled.mean().item() == pytest.approx(3, rel=0.05)
    else:
        assert settled.tolist() == pytest.approx([2, 4], rel=0.07)
    assert dtopp.thetas is not None
    assert (dtopp.thetas != 1).all(), "the scales learn"


def test_calibration_begins_at_the_target():
    network, plain = model("mixtral"), model("mixtral").eval()
    logits = plain(tokens(8, 24), output_router_logits=True).router_logits
    dtopp = convert_topk_to_dtopp(network, 3.0, calibration=tokens(8, 24))
    assert dtopp.thetas is not None
    assert dtopp.thetas.tolist() == pytest.approx([layer.std(dim=-1, correction=0).mean().item() for layer in logits], rel=1e-5)
    assert network.training == plain.train().training
    network.train()(tokens(8, 24))
    assert dtopp.step().active.item() == pytest.approx(3, rel=0.1)
    assert dtopp.controller.num_updates == 1


def test_padding_neither_counts_nor_acts():
    network = model().train()
    dtopp = convert_topk_to_dtopp(network)
    mask = torch.ones(4, 12, dtype=torch.long)
    mask[1, 7:] = mask[3, 2:] = 0
    logits = network(tokens(), attention_mask=mask).logits
    info = dtopp.step()
    counts_LBT = torch.stack([told.counts for told in dtopp.told])
    assert not counts_LBT[:, mask == 0].any()
    torch.testing.assert_close(info.active_L, counts_LBT[:, mask == 1].double().mean(dim=1))
    network.eval()
    torch.testing.assert_close(network(tokens()[3:, :2]).logits, logits[3:, :2], atol=1e-5, rtol=1e-5)


def test_evaluation_and_generation_leave_p_alone():
    network = model("mixtral").eval()
    dtopp = convert_topk_to_dtopp(network)
    p = dtopp.controller.p.clone()
    assert network.generate(tokens(2, 4), max_new_tokens=3, do_sample=False).shape == (2, 7)
    assert not dtopp.step().updated
    assert dtopp.controller.p == p


@pytest.mark.parametrize("family", ["olmoe", "mixtral"])
def test_a_saved_model_is_the_same_again(family: str, tmp_path: Path):
    network = model(family).train()
    dtopp = convert_topk_to_dtopp(network, 3.0)
    network(tokens())
    dtopp.step()
    dtopp.layers[1].gate.theta.data.fill_(1.7)
    torch.save(network.state_dict(), tmp_path / "model.pt")
    again = type(network)(network.config)
    reloaded = convert_topk_to_dtopp(again, 3.0)
    again.load_state_dict(torch.load(tmp_path / "model.pt", weights_only=True))
    assert reloaded.controller.p == dtopp.controller.p != dtopp.controller.p0
    assert reloaded.controller.num_updates == 1
    torch.testing.assert_close(again.eval()(tokens()).logits, network.eval()(tokens()).logits, atol=0, rtol=0)
    copied = copy.deepcopy(network)
    assert copied.dtopp.controller is copied.dtopp_controller is not network.dtopp_controller
    assert copied.dtopp.layers[1] is copied.model.layers[1].mlp
    other = type(network)(network.config)
    convert_topk_to_dtopp(other, 4.0)
    with pytest.raises(ValueError, match="target 3.0"):
        other.load_state_dict(torch.load(tmp_path / "model.pt", weights_only=True))


def test_transformers_reads_it_as_a_top_k_model(tmp_path: Path):
    network = model()
    convert_topk_to_dtopp(network)
    network.save_pretrained(tmp_path)
    plain = transformers.AutoModelForCausalLM.from_pretrained(tmp_path).state_dict()
    assert all(torch.equal(value, plain[name]) for name, value in model().state_dict().items())


def test_recomputed_layers_have_the_same_gradients():
    network = model("mixtral").train()
    dtopp = convert_topk_to_dtopp(network)
    found = []
    for recompute in (False, True):
        if recompute:
            network.activation_checkpointing_enable()
        loss = network(tokens(), labels=tokens()).loss + torch.stack([told.load_balance for told in dtopp.told]).mean()
        network.zero_grad()
        loss.backward()
        found.append((network.model.layers[0].mlp.gate.weight.grad.clone(), dtopp.step().active))
    torch.testing.assert_close(found[0][0], found[1][0])
    assert found[0][1] == pytest.approx(found[1][1].item())


def test_counts_are_summed_over_ranks(monkeypatch):
    """Another rank has as many tokens, all of which use every expert."""
    network = model().train()
    dtopp = convert_topk_to_dtopp(network)
    network(tokens())
    own = torch.stack([told.counts for told in dtopp.told]).double().mean().item()

    def all_reduce(seen_2L: Tensor) -> None:
        seen_2L += torch.tensor([[48.0 * N], [48.0]], dtype=torch.float64)

    monkeypatch.setattr(distributed, "is_initialized", lambda: True)
    monkeypatch.setattr(distributed, "all_reduce", all_reduce)
    assert dtopp.step().active.item() == pytest.approx((own + N) / 2)


def test_what_cannot_be_converted_is_refused():
    llama = transformers.LlamaForCausalLM(
        transformers.LlamaConfig(vocab_size=V, hidden_size=32, intermediate_size=16, num_hidden_layers=1, num_attention_heads=4)
    )
    with pytest.raises(ValueError, match="LlamaForCausalLM has no gates"):
        convert_topk_to_dtopp(llama)
    for target in (0.5, N + 1):
        network = model()
        with pytest.raises(ValueError, match=f"target={target:g} must lie between 1 and the 8 experts"):
            convert_topk_to_dtopp(network, target)
        assert not any(isinstance(module, DTopPSparseBlock) for module in network.modules()), "it is left as it was"
    dtopp = convert_topk_to_dtopp(network)
    with pytest.raises(ValueError, match="already"):
        convert_topk_to_dtopp(network)
    with pytest.raises(RuntimeError, match="not seen any tokens"):
        _ = dtopp.told
    with pytest.raises(ValueError, match="2 layers of 4 experts"):
        convert_topk_to_dtopp(model(), controller=SparsityController(4, 2, 2))
    noisy = model("mixtral")
    noisy.model.layers[0].mlp.jitter_noise = 0.1
    with pytest.raises(ValueError, match="router_jitter_noise=0"):
        convert_topk_to_dtopp(noisy)


def test_without_transformers_there_is_one_clear_line(monkeypatch):
    import sys

    monkeypatch.setitem(sys.modules, "transformers.models.olmoe.modeling_olmoe", None)
    with pytest.raises(ImportError, match=r"leyden\[llm\]"):
        convert_topk_to_dtopp(model("mixtral"))


def test_the_module_goes_on_from_a_folder(tmp_path: Path):
    original = model()
    original.save_pretrained(tmp_path / "olmoe")
    module = MoEFineTuneModule(str(tmp_path / "olmoe"), vocab_size=V, lr=1e-2, ki=0.2)
    trained = module.network.model.layers[1].mlp.experts.down_proj
    torch.testing.assert_close(trained, original.model.layers[1].mlp.experts.down_proj)
    assert module.target == K
    assert isinstance(module.converted, DTopPRouting)
    assert module.converted.controller is module.controller
    assert sum(name.endswith("num_updates") for name in module.state_dict()) == 1

    logged: dict[str, Any] = {}
    module.log = lambda name, value, **_: logged.update({name: value})  # type: ignore[method-assign, assignment]
    module.log_dict = logged.update  # type: ignore[method-assign, assignment]
    strategy = SimpleNamespace(reduce=lambda seen, reduce_op: seen)
    module._trainer = SimpleNamespace(global_step=0, strategy=strategy)  # type: ignore[assignment]
    optimizer = torch.optim.AdamW(module.parameters(), lr=1e-2)
    losses = []
    for step in range(12):
        module.trainer.global_step = step  # type: ignore[misc]
        loss = module.training_step({"tokens": tokens()}, step)
        losses.append(logged["train/loss"].item())
        loss.backward()
        module.on_before_optimizer_step(optimizer)
        assert module.move_threshold() is None, "once in a step"
        optimizer.step()
        optimizer.zero_grad()
    assert losses[-1] < losses[0] - 0.5
    assert module.controller is not None
    assert module.controller.num_updates == 12
    assert module.control is not None
    assert module.control.active.item() == pytest.approx(K, rel=0.2)
    with pytest.raises(ValueError, match="have 62 tokens"):
        MoEFineTuneModule(str(tmp_path / "olmoe"), vocab_size=V + 1)

from typing import Any

import pytest
import torch
import yaml
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from benchmarks.calculations.paper_sizes import LENGTH, PAPER, SIZES, paper_model, paper_sizes
from lightning_modules.dtop_p.costs import forward_operations, parameter_counts
from lightning_modules.dtop_p.language_module import MoELanguageModule

V = 50_304
SHAPES = {  # d, L, N, T, f
    "64e8a": (2048, 16, 64, 8, 1024),
    "32e4a": (2048, 16, 32, 4, 2048),
    "128e16a": (2048, 16, 128, 16, 512),
    "0.4b": (1024, 18, 64, 8, 512),
    "2.4b": (2560, 20, 64, 8, 1280),
}


@pytest.mark.parametrize("size", SIZES)
def test_the_papers_models_by_hand(size: str):
    d, L, N, T, f = SHAPES[size]
    module = paper_model(size)
    assert all(tensor.is_meta for tensor in (*module.parameters(), *module.buffers())), "nothing was stored"
    found = parameter_counts(module.decoder, module.target)
    rest = 2 * V * d + L * (4 * d * d + N * d + 2 * d + 1) + d  # the scale of the logits is one number a layer
    assert found.total == rest + L * N * 3 * d * f
    assert found.active == rest + L * T * 3 * d * f
    assert found.embedding == 2 * V * d
    assert found.experts == L * N * 3 * d * f
    operations = forward_operations(module.decoder, module.target, LENGTH)
    assert operations.attention == L * (8 * d * d + 2 * d * (LENGTH + 1))
    assert operations.router == L * 2 * d * N
    assert operations.experts == 6 * d * f * L * T
    assert operations.head == 2 * d * V
    assert operations.total == sum(operations)


def test_the_papers_numbers():
    assert {size: round(paper_sizes(size, 0)["active"], 1) for size in SIZES} == {
        **dict.fromkeys(("64e8a", "32e4a", "128e16a"), 1.3),
        **{"0.4b": 0.4, "2.4b": 2.4},
    }
    assert [round(paper_sizes(size, 0)["total"], 1) for size in ("64e8a", "32e4a", "128e16a")] == [6.9] * 3


def test_dense_and_top_k_cost_as_much():
    mixture, dense, topk = (paper_model("64e8a", routing=routing) for routing in ("dtopp", "dense", "topk"))
    ours, theirs = (forward_operations(module.decoder, 8, LENGTH) for module in (mixture, topk))
    alone = forward_operations(dense.decoder, [], LENGTH)
    assert ours == theirs
    assert alone == ours._replace(router=0)
    assert parameter_counts(dense.decoder, []).active == parameter_counts(dense.decoder, []).total


def test_each_layer_has_its_own_number():
    decoder = paper_model("64e8a").decoder
    uneven = [4.0] * 8 + [12.0] * 8
    assert forward_operations(decoder, uneven, LENGTH) == forward_operations(decoder, 8, LENGTH)
    assert parameter_counts(decoder, uneven) == parameter_counts(decoder, 8)
    assert forward_operations(decoder, [4.0] * 16, LENGTH).experts == forward_operations(decoder, 8, LENGTH).experts / 2
    with pytest.raises(ValueError, match="16 mixtures"):
        forward_operations(decoder, [8.0], LENGTH)


@pytest.mark.parametrize("options", [{"routing": "topk", "dispatch": "loop"}, {"routing": "dense"}, {"num_kv_heads": 2}])
def test_operations_are_those_that_torch_counts(options: dict[str, Any]):
    rows, length = 2, 16
    options = {"routing": "dense", **options}
    module = MoELanguageModule(11, d_model=32, num_layers=2, num_heads=4, num_experts=8, target=3, expert_hidden=16, **options)
    with FlopCounterMode(display=False) as counter, torch.no_grad(), sdpa_kernel(SDPBackend.MATH):
        module(torch.zeros(rows, length, dtype=torch.long))
    found = forward_operations(module.decoder, 3 if options["routing"] == "topk" else [], length)
    # torch counts the products with all tokens of the window, not only with those before
    ahead = 2 * 2 * 32 * (length - 1)
    assert counter.get_total_flops() == rows * length * (found.total + ahead)


def test_the_papers_training():
    config = yaml.safe_load(PAPER.read_text())
    data, trainer, model = config["data"]["init_args"], config["trainer"], config["model"]["init_args"]
    windows = data["batch_size"] * trainer["accumulate_grad_batches"]
    assert windows == 1024
    assert windows * LENGTH * trainer["max_steps"] == pytest.approx(1e11, rel=0.01)
    assert round(model["warmup_share"] * trainer["max_steps"]) == 2000
    assert trainer["val_check_interval"] == 2000 * trainer["accumulate_grad_batches"]
    topk = yaml.safe_load((PAPER.parent / "dclm_topk_paper.yaml").read_text())
    assert topk["data"] == config["data"]
    assert {name: value for name, value in topk["trainer"].items() if name != "callbacks"} == {
        name: value for name, value in trainer.items() if name != "callbacks"
    }
    changed = {"routing", "load_balance", "router_z", "ki"}
    common = topk["model"]["init_args"].keys() - changed
    assert {name: topk["model"]["init_args"][name] for name in common} == {
        name: value for name, value in model.items() if name not in changed
    }

"""The layer under torch.compile: one graph, which a new threshold does not compile anew."""

import pytest
import torch
from torch._dynamo.testing import CompileCounter

from lightning_modules.dtop_p.controller import SparsityController
from lightning_modules.dtop_p.moe import MoEFeedForward


def layer(mode: str, dispatch: str) -> MoEFeedForward:
    torch.manual_seed(0)
    limits = {"k": 3} if mode == "topk" else {"k_max": 5}
    return MoEFeedForward(16, 8, 8, mode, dispatch=dispatch, init_std=0.3, **limits)


@pytest.mark.parametrize(("mode", "dispatch"), [("dtopp", "sort"), ("dtopp", "dense"), ("topk", "sort")])
def test_one_graph_for_all_thresholds(mode, dispatch):
    of, controller, counter = layer(mode, dispatch), SparsityController(8, 2, 1), CompileCounter()
    compiled = torch.compile(of, backend=counter, fullgraph=True)
    seen = []
    for _ in range(4):
        x = torch.randn(20, 16)
        arguments = () if mode == "topk" else (controller.current(0),)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            (y, aux), (expected, expected_aux) = compiled(x, *arguments), of(x, *arguments)
        assert torch.equal(y, expected)
        assert torch.equal(aux.counts, expected_aux.counts)
        controller.observe(0, aux.counts)
        controller.step()
        seen.append(controller.p.item())
    assert len(set(seen)) > 1
    assert counter.frame_count == 1


def test_grouped_in_float32_breaks_the_graph_only():
    of, p = layer("dtopp", "grouped"), torch.tensor(0.6)
    compiled = torch.compile(of, backend="eager")
    x = torch.randn(20, 16)
    gradients = []
    for call in (of, compiled):
        y, aux = call(x, p)
        (y.square().sum() + aux.load_balance).backward()
        gradients.append([y.detach(), *(parameter.grad.clone() for parameter in of.parameters())])
        of.zero_grad()
    for value, right in zip(*gradients, strict=True):
        torch.testing.assert_close(value, right)

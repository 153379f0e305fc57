import gc
import weakref
from types import SimpleNamespace

import torch
from torch import Tensor

from lightning_modules.gesc.graph_memory import remembered

EDGES = torch.tensor([[0, 1, 2], [1, 2, 0]])


def counted() -> SimpleNamespace:
    calls: list[int] = []

    @remembered
    def degrees(edge_index: Tensor, nodes: int, dtype: torch.dtype) -> Tensor:
        calls.append(nodes)
        return edge_index[1].bincount(minlength=nodes).to(dtype)

    return SimpleNamespace(calls=calls, degrees=degrees)


def test_once_for_each_graph():
    made = counted()
    one, other = EDGES.clone(), EDGES.clone()
    first = made.degrees(one, 3, torch.float32)
    assert made.degrees(one, 3, torch.float32) is first
    assert made.degrees(other, 3, torch.float32) is not first
    assert made.degrees(one, 3, torch.float32) is first
    assert len(made.calls) == 2


def test_anew_after_a_change():
    made = counted()
    edges = EDGES.clone()
    made.degrees(edges, 3, torch.float32)
    assert made.degrees(edges, 4, torch.float32).tolist() == [1, 1, 1, 0]
    assert made.degrees(edges, 4, torch.float64).dtype == torch.float64
    edges[1] = 0
    assert made.degrees(edges, 4, torch.float64).tolist() == [3, 0, 0, 0]
    assert len(made.calls) == 4


def test_forgotten_with_the_graph():
    made = counted()
    edges = EDGES.clone()
    answer = weakref.ref(made.degrees(edges, 3, torch.float32))
    assert answer() is not None
    del edges
    gc.collect()
    assert answer() is None


def test_inference_mode():
    made = counted()
    edges = EDGES.clone()
    with torch.inference_mode():
        answer = made.degrees(edges, 3, torch.float32)
        inside = EDGES.clone()
        assert made.degrees(inside, 3, torch.float32) is not made.degrees(inside, 3, torch.float32)
    assert not answer.is_inference(), "a training pass may use it"
    assert made.degrees(edges, 3, torch.float32) is answer

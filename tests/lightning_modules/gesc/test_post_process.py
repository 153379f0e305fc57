import pytest
import torch
from torch import Tensor
from torch_geometric.nn import CorrectAndSmooth, LabelPropagation
from torch_geometric.utils import add_self_loops, to_undirected

from lightning_modules.gesc.post_process import Post, post_process

N, C = 40, 3
POSTS: list[Post] = ["cs", "cs_lp"]


def graph(seed: int = 0) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    g = torch.Generator().manual_seed(seed)
    edges = add_self_loops(to_undirected(torch.randint(N, (2, 60), generator=g), num_nodes=N), num_nodes=N)[0]
    logits, y = torch.randn(N, C, generator=g), torch.randint(C, (N,), generator=g)
    return logits, y, torch.rand(N, generator=g) < 0.4, edges


def test_none_is_the_softmax():
    logits, y, labelled, edges = graph()
    assert torch.equal(post_process(logits, y, labelled, edges, "none"), logits.softmax(dim=-1))


def test_it_is_pygs_two_classes_up_to_the_sum_of_a_row():
    logits, y, labelled, edges = graph()
    method = CorrectAndSmooth(50, 0.5, 50, 0.8)
    arguments = (y[labelled], labelled, edges)
    smoothed = method.smooth(method.correct(logits.softmax(dim=-1), *arguments), *arguments)
    propagated = LabelPropagation(50, 0.9)(y, edges, labelled)
    assert propagated.shape == (N, C)
    for post, expected in zip(POSTS, (smoothed, 0.8 * smoothed + 0.2 * propagated), strict=True):
        found = post_process(logits, y, labelled, edges, post)
        assert torch.allclose(found, expected / expected.sum(dim=-1, keepdim=True), atol=1e-6)
        assert torch.equal(found.argmax(dim=-1), expected.argmax(dim=-1))
    assert (smoothed.sum(dim=-1) - 1).abs().max() > 0.05, "without the division rows do not sum to 1"


@pytest.mark.parametrize("post", POSTS)
def test_rows_sum_to_one(post: Post):
    found = post_process(*graph(), post)
    assert torch.allclose(found.sum(dim=-1), torch.ones(N), atol=1e-6)
    assert (found >= 0).all()


@pytest.mark.parametrize("post", POSTS)
def test_labels_of_other_nodes_never_enter(post: Post):
    logits, y, labelled, edges = graph()
    generator = torch.Generator().manual_seed(9)
    others = torch.where(labelled, y, torch.randint(-5, 50, (N,), generator=generator))
    assert torch.equal(post_process(logits, y, labelled, edges, post), post_process(logits, others, labelled, edges, post))
    moved = torch.where(labelled, (y + 1) % C, y)
    assert not torch.equal(post_process(logits, y, labelled, edges, post), post_process(logits, moved, labelled, edges, post))


def test_a_model_without_errors_is_only_smoothed():
    """PyG's scale of the correction is 0/0 then."""
    _, y, labelled, edges = graph()
    certain = 1e4 * torch.nn.functional.one_hot(y, C).float()
    found = post_process(certain, y, labelled, edges, "cs")
    smoothed = CorrectAndSmooth(50, 0.5, 50, 0.8).smooth(certain.softmax(dim=-1), y[labelled], labelled, edges)
    assert torch.allclose(found, smoothed / smoothed.sum(dim=-1, keepdim=True), atol=1e-6)
    assert post_process(certain, y, labelled, edges, "cs_lp").isfinite().all()


def test_bad_input_is_refused():
    logits, y, labelled, edges = graph()
    with pytest.raises(ValueError, match="'c&s' is unknown"):
        post_process(logits, y, labelled, edges, "c&s")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="labelled_mask is empty"):
        post_process(logits, y, torch.zeros_like(labelled), edges, "cs")

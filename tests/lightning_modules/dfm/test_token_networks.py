import pytest
import torch

from lightning_modules.dfm.networks import TokenMLP, TokenTransformer

torch.set_num_threads(1)


def awake(net: torch.nn.Module) -> torch.nn.Module:
    """Leave the initial state, in which some layers are 0."""
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.add_(0.1 * torch.randn(parameter.shape, generator=generator))
    return net


NETWORKS = {
    "mlp": lambda time: TokenMLP(5, 4, 6, width=16, time=time),
    "embedded": lambda time: TokenMLP(5, 4, 6, width=16, embed=3, time=time),
    "residual": lambda time: TokenMLP(5, 4, 6, width=16, depth=2, residual=True, time=time),
    "transformer": lambda time: TokenTransformer(5, 4, 6, width=16, depth=2, num_heads=2, time=time),
}


@pytest.mark.parametrize("name", NETWORKS)
def test_every_token_is_told_by_all_others(name: str):
    torch.manual_seed(0)
    net = awake(NETWORKS[name](True))
    x, t = torch.randint(5, (3, 6)), torch.rand(3)
    logits = net(x, t)
    assert logits.shape == (3, 6, 4)
    other = x.clone()
    other[:, 5] = (other[:, 5] + 1) % 5
    assert ((net(other, t) - logits).abs().amax(dim=-1) > 1e-6).all(), "the last token counts for each"
    assert torch.allclose(net(x[:1], t[:1]), logits[:1], atol=1e-6), "a sequence does not depend on its batch"


@pytest.mark.parametrize("name", NETWORKS)
def test_time_counts_only_if_it_is_to_be_known(name: str):
    torch.manual_seed(0)
    x = torch.randint(5, (2, 6))
    early, late = torch.full((2,), 0.1), torch.full((2,), 0.9)
    without, knowing = awake(NETWORKS[name](False)), awake(NETWORKS[name](True))
    assert torch.equal(without(x, early), without(x, late))
    assert not torch.allclose(knowing(x, early), knowing(x, late))
    assert knowing(x, torch.ones(2)).isfinite().all()


def test_one_hot_is_an_embedding_by_the_first_layer():
    net = TokenMLP(5, 4, 2, width=8, depth=1, time=False)
    x = torch.tensor([[3, 1]])
    first = net.body[0]
    hidden = first.weight[:, 3] + first.weight[:, 5 + 1] + first.bias
    expected = net.body[2](torch.nn.functional.silu(hidden)).view(2, 4)
    assert torch.allclose(net(x, torch.zeros(1))[0], expected, atol=1e-6)


def test_the_transformer_knows_the_order_and_begins_with_equal_logits():
    torch.manual_seed(0)
    net = TokenTransformer(5, 4, 6, width=16, depth=1, num_heads=2)
    x, t = torch.tensor([[0, 1, 2, 3, 4, 0]]), torch.full((1,), 0.5)
    assert torch.equal(net(x, t), torch.zeros(1, 6, 4))
    awake(net)
    assert not torch.allclose(net(x.flip(1), t).flip(1), net(x, t), atol=1e-4)
    net.checkpointing = True
    net(x, t).sum().backward()
    again = {name: parameter.grad.clone() for name, parameter in net.named_parameters()}
    net.zero_grad()
    net.checkpointing = False
    net(x, t).sum().backward()
    assert all(torch.allclose(parameter.grad, again[name], atol=1e-6) for name, parameter in net.named_parameters())


def test_bad_sizes_are_refused():
    with pytest.raises(ValueError, match="width=0"):
        TokenMLP(5, 4, 6, width=0)
    with pytest.raises(ValueError, match="embed=0"):
        TokenMLP(5, 4, 6, embed=0)
    with pytest.raises(ValueError, match="cannot be cut"):
        TokenTransformer(5, 4, 6, width=10, num_heads=4)

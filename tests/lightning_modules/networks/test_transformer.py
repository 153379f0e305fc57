import pytest
import torch
from torch import Tensor, nn

from lightning_modules.networks.attention import CausalSelfAttention, within_documents
from lightning_modules.networks.rotary import rotate, rotation_table
from lightning_modules.networks.swiglu import SwiGLU
from lightning_modules.networks.transformer import Decoder, DecoderBlock

torch.set_num_threads(1)


def normal(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def decoder(**settings) -> Decoder:
    torch.manual_seed(0)
    sizes = {"vocab_size": 11, "d_model": 16, "num_layers": 2, "num_heads": 4, "init_std": 0.3}
    return Decoder(**(sizes | {"feed_forward": lambda layer: SwiGLU(16, 24)} | settings)).double()


def ids(batch: int = 2, length: int = 9, seed: int = 1) -> Tensor:
    return torch.randint(11, (batch, length), generator=torch.Generator().manual_seed(seed))


def turned(x: Tensor, position: int, base: float = 10_000.0) -> Tensor:
    """Rotary positions by complex numbers."""
    half = x.shape[-1] // 2
    frequency = torch.tensor([base ** (-2 * j / x.shape[-1]) for j in range(half)], dtype=torch.float64)
    z = torch.complex(x[..., :half], x[..., half:]) * torch.exp(1j * position * frequency)
    return torch.cat([z.real, z.imag], dim=-1)


def test_rotary_by_hand():
    # D = 4: angles t and t / 100
    cosine, sine = rotation_table(3, 4)
    assert torch.allclose(cosine[2], torch.tensor([2.0, 0.02]).cos())
    assert torch.allclose(sine[2], torch.tensor([2.0, 0.02]).sin())
    x = normal(3, 4)
    expected = torch.stack([turned(row, t) for t, row in enumerate(x)])
    assert torch.allclose(rotate(x, cosine, sine), expected, atol=1e-6)
    assert torch.equal(rotate(x, cosine, sine)[0], x[0])


def test_rotary_products_depend_on_the_distance_alone():
    q, k = normal(8, seed=1).expand(20, 8), normal(8, seed=2).expand(20, 8)
    table = rotation_table(20, 8)
    product = rotate(q, *table) @ rotate(k, *table).T
    for distance in range(-10, 10):
        diagonal = product.diagonal(distance)
        assert torch.allclose(diagonal, diagonal[0].expand_as(diagonal), atol=1e-5)
    assert (product.diagonal(1)[0] - product.diagonal(2)[0]).abs() > 1e-2


def test_rotary_keeps_the_type():
    table = rotation_table(5, 8)
    assert table[0].dtype == torch.float32
    assert rotate(normal(5, 8, dtype=torch.bfloat16), *table).dtype == torch.bfloat16
    with pytest.raises(ValueError, match="head_dim=3 is odd"):
        rotation_table(5, 3)


@pytest.mark.parametrize("kv_heads", [4, 2, 1])
def test_attention_is_the_sum_written_out(kv_heads: int):
    torch.manual_seed(0)
    layer = CausalSelfAttention(16, 4, kv_heads).double()
    x = normal(1, 6, 16)
    q = (x @ layer.query.weight.T)[0].reshape(6, 4, 4)
    k = (x @ layer.key.weight.T)[0].reshape(6, kv_heads, 4)
    v = (x @ layer.value.weight.T)[0].reshape(6, kv_heads, 4)
    rows = []
    for t in range(6):
        heads = []
        for h in range(4):
            shared = h * kv_heads // 4
            scores = torch.stack([turned(q[t, h], t) @ turned(k[s, shared], s) / 2 for s in range(t + 1)])
            heads.append(scores.softmax(0) @ v[: t + 1, shared])
        rows.append(torch.cat(heads) @ layer.output.weight.T)
    assert torch.allclose(layer(x, rotation_table(6, 4))[0], torch.stack(rows), atol=1e-6)


def test_no_token_sees_a_later_one():
    model, tokens = decoder(), ids()
    changed = tokens.clone()
    changed[:, 5] = (tokens[:, 5] + 1) % 11
    before, after = model(tokens)[0], model(changed)[0]
    assert torch.allclose(before[:, :5], after[:, :5], atol=1e-9)
    assert (before[:, 5:] - after[:, 5:]).abs().amax(dim=(0, 2)).min() > 1e-6


def test_documents_are_read_as_if_each_were_alone():
    model, tokens = decoder(num_kv_heads=2), ids(1, 9)
    documents = torch.tensor([[0, 0, 0, 0, 1, 1, 1, 2, 2]])
    packed = model(tokens, documents_BT=documents)[0]
    alone = torch.cat([model(part)[0] for part in tokens.split([4, 3, 2], dim=1)], dim=1)
    assert torch.allclose(packed, alone, atol=1e-6)
    assert (packed - model(tokens)[0]).abs().max() > 1e-3
    assert within_documents(documents)[0, 0, 5].tolist() == [False] * 4 + [True] * 2 + [False] * 3


class Scaled(nn.Module):
    """A feed-forward layer with an argument and something to tell."""

    def forward(self, x: Tensor, factor: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        return x * factor, {"factor": factor, "mean": x.mean()}


@pytest.mark.parametrize("checkpointing", [False, True])
def test_feed_forward_layers_take_arguments_and_tell_something(checkpointing: bool):
    model = decoder(feed_forward=lambda layer: Scaled(), checkpointing=checkpointing)
    factors = torch.tensor([0.5, 2.0], dtype=torch.float64)
    logits, told = model(ids(), [(factor,) for factor in factors])
    assert [beside["factor"].item() for beside in told] == [0.5, 2.0]
    assert logits.shape == (2, 9, 11)
    assert not torch.equal(logits, model(ids(), [(factor,) for factor in factors.flip(0)])[0])
    assert decoder()(ids())[1] == [None, None]
    with pytest.raises(ValueError, match="arguments for 1 feed-forward layers"):
        model(ids(), [(factors[0],)])


def test_block_is_pre_norm():
    torch.manual_seed(0)
    block = DecoderBlock(16, 4, SwiGLU(16, 24)).double()
    x, table = normal(2, 5, 16), rotation_table(5, 4)
    norm = x / (x.square().mean(-1, keepdim=True) + 1e-5).sqrt()
    middle = x + block.attention(norm, table)
    norm = middle / (middle.square().mean(-1, keepdim=True) + 1e-5).sqrt()
    gate, up, down = (getattr(block.feed_forward, name).weight for name in ("gate", "up", "down"))
    hidden = norm @ gate.T
    expected = middle + (hidden * hidden.sigmoid() * (norm @ up.T)) @ down.T
    assert torch.allclose(block(x, table)[0], expected, atol=1e-9)


def test_checkpointing_changes_no_gradient():
    gradients = []
    for checkpointing in (False, True):
        model = decoder(checkpointing=checkpointing)
        calls = []
        model.blocks[0].register_forward_pre_hook(lambda *_, calls=calls: calls.append(1))
        model(ids())[0].logsumexp(-1).sum().backward()
        assert len(calls) == 1 + checkpointing
        gradients.append([parameter.grad for parameter in model.parameters()])
    assert all(torch.equal(one, other) for one, other in zip(*gradients, strict=True))
    assert all(gradient.abs().max() > 0 for gradient in gradients[0])


def test_parameter_count():
    V, d, f, L, kv = 11, 16, 24, 2, 2
    model = decoder(num_kv_heads=kv)
    attention = 2 * d * d + 2 * d * kv * (d // 4)
    assert sum(p.numel() for p in model.parameters()) == 2 * V * d + L * (attention + 3 * d * f + 2 * d) + d
    assert model.head.weight is not model.embedding.weight


def test_initial_standard_deviations():
    torch.manual_seed(0)
    model = Decoder(500, 128, 8, 4, lambda layer: SwiGLU(128, 256))
    stds = {name: parameter.std().item() for name, parameter in model.named_parameters() if parameter.dim() == 2}
    for name, std in stds.items():
        residual = name.endswith(("attention.output.weight", "feed_forward.down.weight"))
        assert std == pytest.approx(0.02 / 4 if residual else 0.02, rel=0.05), name
    assert sum(name.endswith(("output.weight", "down.weight")) for name in stds) == 16
    assert all((parameter == 1).all() for parameter in model.parameters() if parameter.dim() == 1)


@pytest.mark.parametrize("kv_heads", [4, 2])
def test_llama_of_transformers_is_the_same_network(kv_heads: int):
    transformers = pytest.importorskip("transformers")
    config = transformers.LlamaConfig(
        vocab_size=11,
        hidden_size=16,
        intermediate_size=24,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=kv_heads,
        rms_norm_eps=1e-5,
        tie_word_embeddings=False,
    )
    llama, model = transformers.LlamaForCausalLM(config).double().eval(), decoder(num_kv_heads=kv_heads)
    names = {
        "embedding": "model.embed_tokens",
        "norm": "model.norm",
        "head": "lm_head",
        "attention_norm": "input_layernorm",
        "feed_forward_norm": "post_attention_layernorm",
        "attention.query": "self_attn.q_proj",
        "attention.key": "self_attn.k_proj",
        "attention.value": "self_attn.v_proj",
        "attention.output": "self_attn.o_proj",
        "feed_forward.gate": "mlp.gate_proj",
        "feed_forward.up": "mlp.up_proj",
        "feed_forward.down": "mlp.down_proj",
    }
    theirs = {}
    for name, parameter in model.named_parameters():
        prefix, own = "", name.removesuffix(".weight")
        if own.startswith("blocks."):
            _, layer, own = own.split(".", 2)
            prefix = f"model.layers.{layer}."
        theirs[f"{prefix}{names[own]}.weight"] = parameter.detach()
    llama.load_state_dict(theirs)
    with torch.no_grad():
        assert torch.allclose(model(ids())[0], llama(ids()).logits, atol=1e-6)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"num_heads": 3}, "num_heads=3"),
        ({"num_heads": 0}, "num_heads=0"),
        ({"num_heads": 16}, "head_dim=1 is odd"),
        ({"num_kv_heads": 3}, "num_kv_heads=3"),
        ({"num_layers": 0}, "num_layers=0 must be positive"),
        ({"vocab_size": 0}, "vocab_size=0 must be positive"),
    ],
)
def test_bad_sizes_are_named(settings: dict, message: str):
    with pytest.raises(ValueError, match=message):
        decoder(**settings)

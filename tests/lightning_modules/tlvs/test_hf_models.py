"""Steering of models of transformers, tiny and with random weights."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

transformers = pytest.importorskip("transformers", reason="models of transformers need the extra leyden[llm]")

from lightning_modules.tlvs.adapter import UnsupportedModelError, captured  # noqa: E402
from lightning_modules.tlvs.artifact import SteeringArtifact  # noqa: E402
from lightning_modules.tlvs.calibration import answer_loss, caption_losses  # noqa: E402
from lightning_modules.tlvs.contrastive import ContrastiveLogitsProcessor  # noqa: E402
from lightning_modules.tlvs.exact_steering import ExactSteering  # noqa: E402
from lightning_modules.tlvs.extraction import TLVSExtractor  # noqa: E402
from lightning_modules.tlvs.hf_adapter import HFVLMAdapter  # noqa: E402
from lightning_modules.tlvs.mlp_steering import vista, vista_vectors, vti, vti_directions  # noqa: E402
from lightning_modules.tlvs.steering import steering  # noqa: E402
from tests.lightning_modules.tlvs.tiny_llava import tiny_llava  # noqa: E402

TEXT: dict[str, Any] = {
    "vocab_size": 64,
    "hidden_size": 16,
    "intermediate_size": 32,
    "num_hidden_layers": 4,
    "num_attention_heads": 2,
    "num_key_value_heads": 2,
    "max_position_embeddings": 128,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": None,
    "initializer_range": 0.3,
}
IMAGE, START, END = 60, 61, 62


def llava() -> Any:
    return tiny_llava(TEXT["vocab_size"], IMAGE, eos_token_id=None)


def qwen() -> Any:
    rope = {"rope_type": "default", "mrope_section": [1, 1, 2], "rope_theta": 10000.0}
    vision = {"depth": 2, "embed_dim": 16, "hidden_size": 16, "num_heads": 2, "patch_size": 4, "mlp_ratio": 2}
    config = transformers.Qwen2VLConfig(
        text_config={**TEXT, "rope_parameters": rope},
        vision_config=vision,
        image_token_id=IMAGE,
        vision_start_token_id=START,
        vision_end_token_id=END,
        video_token_id=63,
    )
    return transformers.Qwen2VLForConditionalGeneration(config)


def llava_batch(texts: list[list[int]], seed: int = 0) -> dict[str, Tensor]:
    return padded([[1, *[IMAGE] * 4, *text] for text in texts]) | {"pixel_values": noise(seed, len(texts), 3, 8, 8)}


def qwen_batch(texts: list[list[int]], seed: int = 0) -> dict[str, Tensor]:
    batch = padded([[1, START, *[IMAGE] * 4, END, *text] for text in texts])
    return batch | {
        "pixel_values": noise(seed, 16 * len(texts), 3 * 2 * 4 * 4),
        "image_grid_thw": torch.tensor([[1, 4, 4]] * len(texts)),
        "mm_token_type_ids": (batch["input_ids"] == IMAGE).int(),
    }


def padded(rows: list[list[int]]) -> dict[str, Tensor]:
    """Pad at the left."""
    longest = max(map(len, rows))
    ids = torch.tensor([[0] * (longest - len(row)) + row for row in rows])
    mask = torch.tensor([[0] * (longest - len(row)) + [1] * len(row) for row in rows])
    return {"input_ids": ids, "attention_mask": mask}


def noise(seed: int, *shape: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


MAKERS = {"llava": (llava, llava_batch), "qwen": (qwen, qwen_batch)}
TEXTS = [[5, 6, 7], [8, 9], [10, 11, 12, 13, 14]]


@pytest.fixture(scope="module", params=MAKERS)
def case(request: Any) -> tuple[HFVLMAdapter, Any]:
    """An adapter of a model, and what makes its batches."""
    model, batch = MAKERS[request.param]
    torch.manual_seed(0)
    return HFVLMAdapter(model()), batch


def with_responses(batch: dict[str, Tensor], length: int = 2) -> dict[str, Tensor]:
    """Mark the last tokens as the response."""
    labels = torch.full_like(batch["input_ids"], -100)
    labels[:, -length:] = batch["input_ids"][:, -length:]
    return batch | {"labels": labels}


@pytest.fixture(scope="module")
def artifact(case: tuple[HFVLMAdapter, Any]) -> SteeringArtifact:
    adapter, batch_of = case
    generator = torch.Generator().manual_seed(3)
    texts = torch.randint(3, 59, (40, 6), generator=generator).tolist()
    found = TLVSExtractor(adapter).fit([with_responses(batch_of(texts), 4)])
    found.vectors_Ld *= 5
    return found


def test_where_the_layers_are(case: tuple[HFVLMAdapter, Any]):
    adapter, _ = case
    assert len(adapter.decoder_layers()) == 4
    assert adapter.decoder_layers()[0] is adapter.model.model.language_model.layers[0]
    assert [part is layer.mlp for part, layer in zip(adapter.mlp_layers(), adapter.decoder_layers(), strict=True)] == [True] * 4


def test_the_blind_batch_is_the_text_alone(case: tuple[HFVLMAdapter, Any]):
    adapter, batch_of = case
    blind = adapter.without_image(with_responses(batch_of(TEXTS)))
    expected = padded([[1, *text] for text in TEXTS])
    assert torch.equal(blind["input_ids"], expected["input_ids"])
    assert torch.equal(blind["attention_mask"], expected["attention_mask"])
    assert torch.equal(blind["labels"], with_responses(expected)["labels"])
    assert not {"pixel_values", "image_grid_thw", "mm_token_type_ids"} & set(blind)


def test_extraction_reports_what_it_saw(artifact: SteeringArtifact):
    assert artifact.layers == (1, 2)
    assert artifact.report["steps"] == 160
    assert 0.2 < artifact.report["top_share"] <= 1
    assert torch.allclose(artifact.vectors_Ld.norm(dim=-1), torch.tensor(0.5))


def test_nothing_happens_without_strength_and_no_hook_stays(case: tuple[HFVLMAdapter, Any], artifact: SteeringArtifact):
    adapter, batch_of = case
    batch = batch_of(TEXTS)
    plain = adapter.logits(batch)
    with steering(adapter, artifact, alpha=0.0):
        assert torch.equal(adapter.logits(batch), plain)
    hooks = hooks_of(adapter)

    def interrupted() -> None:
        with steering(adapter, artifact):
            assert hooks_of(adapter) > hooks
            assert not torch.equal(adapter.logits(batch), plain)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert hooks_of(adapter) == hooks
    assert torch.equal(adapter.logits(batch), plain)


def hooks_of(adapter: HFVLMAdapter) -> int:
    """Return how many hooks the model has; some are its own."""
    return sum(len(module._forward_hooks) + len(module._forward_pre_hooks) for module in adapter.model.modules())


def test_the_cache_changes_nothing(case: tuple[HFVLMAdapter, Any], artifact: SteeringArtifact):
    adapter, batch_of = case
    batch = batch_of(TEXTS)
    plain = adapter.generate(batch, 12)
    with steering(adapter, artifact):
        cached = adapter.generate(batch, 12)
        uncached = adapter.generate(batch, 12, use_cache=False)
        again = adapter.generate(batch, 12)
    assert torch.equal(cached, uncached)
    assert torch.equal(cached, again)
    assert not torch.equal(cached, plain)


def test_a_batch_is_steered_as_each_of_its_prompts_alone(case: tuple[HFVLMAdapter, Any], artifact: SteeringArtifact):
    adapter, batch_of = case
    together = batch_of(TEXTS)
    with steering(adapter, artifact):
        steered = adapter.generate(together, 8)
        for row, text in enumerate(TEXTS):
            alone = batch_of([text])
            pixels = together["pixel_values"].chunk(len(TEXTS))[row]
            assert torch.equal(adapter.generate(alone | {"pixel_values": pixels}, 8)[0], steered[row])


def test_beams_are_steered(case: tuple[HFVLMAdapter, Any], artifact: SteeringArtifact):
    adapter, batch_of = case
    batch = batch_of(TEXTS)
    with steering(adapter, artifact):
        cached = adapter.generate(batch, 6, num_beams=3)
        assert torch.equal(cached, adapter.generate(batch, 6, num_beams=3, use_cache=False))
    assert not torch.equal(cached, adapter.generate(batch, 6, num_beams=3))


def test_the_prompt_is_encoded_as_without_steering(case: tuple[HFVLMAdapter, Any], artifact: SteeringArtifact):
    adapter, batch_of = case
    batch = batch_of(TEXTS)
    layer = artifact.layers[0]
    seen: list[Tensor] = []
    with steering(adapter, artifact), watched(adapter, layer, seen):
        adapter.generate(batch, 3)
    with captured([adapter.decoder_layers()[layer]]) as plain:
        adapter.logits(batch)
    length = batch["input_ids"].shape[1]
    assert [state.shape[1] for state in seen] == [length, 1, 1]
    real = batch["attention_mask"].bool()[:, :-1]
    assert torch.allclose(seen[0][:, :-1][real], plain[0][:, :-1][real], atol=1e-5)
    assert not torch.allclose(seen[0][:, -1], plain[0][:, -1])


@contextmanager
def watched(adapter: HFVLMAdapter, layer: int, seen: list[Tensor]) -> Iterator[None]:
    """Keep what a layer returns after all hooks that were there before."""
    handle = adapter.decoder_layers()[layer].register_forward_hook(lambda module, arguments, output: seen.append(output))
    yield
    handle.remove()


def test_bfloat16_is_steered(case: tuple[HFVLMAdapter, Any], artifact: SteeringArtifact):
    adapter, batch_of = case
    make = next(model for model, batch in MAKERS.values() if batch is batch_of)
    half = HFVLMAdapter(make().bfloat16())
    batch = batch_of(TEXTS)
    batch["pixel_values"] = batch["pixel_values"].bfloat16()
    half.identity = adapter.identity  # type: ignore[method-assign]
    with steering(half, artifact):
        assert half.generate(batch, 4).shape == (3, 4)


def test_calibration_trains_the_vectors_alone(case: tuple[HFVLMAdapter, Any], artifact: SteeringArtifact):
    adapter, batch_of = case
    batch = with_responses(batch_of(TEXTS))
    vectors = artifact.vectors_Ld.clone().requires_grad_()
    parts = SteeringArtifact(vectors, artifact.layers, artifact.gate_layer, artifact.gate, "both", artifact.identity, {})
    losses = caption_losses(adapter, batch, parts) | {"answers": answer_loss(adapter, batch, parts)}
    for loss in losses.values():
        (gradient,) = torch.autograd.grad(loss.total, vectors, retain_graph=True)
        assert gradient.abs().min() > 0
    assert not any(parameter.requires_grad for parameter in adapter.model.parameters())


def test_contrast_with_its_own_cache_equals_passes_over_everything(case: tuple[HFVLMAdapter, Any]):
    adapter, batch_of = case
    batch = batch_of(TEXTS)
    weight = 2.0
    found = adapter.generate(batch, 6, ContrastiveLogitsProcessor(adapter, batch, weight, 1e-30))
    assert not torch.equal(found, adapter.generate(batch, 6))
    for row, text in enumerate(TEXTS):
        pixels = batch["pixel_values"].chunk(len(TEXTS))[row]
        response: list[int] = []
        for _ in range(6):
            seeing = batch_of([[*text, *response]]) | {"pixel_values": pixels}
            blind = adapter.without_image(seeing)
            scores = (1 + weight) * adapter.logits(seeing)[0, -1] - weight * adapter.logits(blind)[0, -1]
            response.append(int(scores.argmax()))
        assert found[row].tolist() == response


def test_steering_of_the_feed_forward_parts(case: tuple[HFVLMAdapter, Any]):
    adapter, batch_of = case
    batch = batch_of(TEXTS)
    plain = adapter.generate(batch, 6)
    with vista(adapter, vista_vectors(adapter, batch), 1.0):
        assert not torch.equal(adapter.generate(batch, 6), plain)
    directions = vti_directions(
        adapter, [with_responses(batch_of(TEXTS))], [with_responses(batch_of([text[::-1] for text in TEXTS]))]
    )
    with vti(adapter, directions, 5.0):
        assert not torch.equal(adapter.generate(batch, 6), plain)
    assert torch.equal(adapter.generate(batch, 6), plain)


def test_bad_input(case: tuple[HFVLMAdapter, Any], artifact: SteeringArtifact):
    adapter, batch_of = case
    with pytest.raises(UnsupportedModelError, match=r"decoder\.blocks"):
        HFVLMAdapter(adapter.model, layers_path="decoder.blocks")
    with pytest.raises(UnsupportedModelError, match="image_token_id"):
        HFVLMAdapter(transformers.LlamaForCausalLM(transformers.LlamaConfig(**TEXT)))
    with pytest.raises(ValueError, match="mask"):
        adapter.without_image(batch_of(TEXTS), "mask")
    right = batch_of(TEXTS)
    right["attention_mask"] = right["attention_mask"].flip(1)
    with steering(adapter, artifact), pytest.raises(ValueError, match="padding_side='left'"):
        adapter.logits(right)
    other = SteeringArtifact(artifact.vectors_Ld, artifact.layers, 1, artifact.gate, "both", {"model": "Other"}, {})
    with pytest.raises(ValueError, match="Other"), steering(adapter, other):
        pass
    blind = adapter.without_image(with_responses(batch_of(TEXTS)))
    with pytest.raises(ValueError, match="placeholder"):
        TLVSExtractor(adapter).fit([blind])
    with pytest.raises(ValueError, match="alpha=nan"), steering(adapter, artifact, alpha=float("nan")):
        pass
    with pytest.warns(UserWarning, match="negative"), steering(adapter, artifact, alpha=-1.0):
        pass


def test_exact_steering_without_a_gate_is_steering(case: tuple[HFVLMAdapter, Any], artifact: SteeringArtifact):
    adapter, batch_of = case
    batch, constant = batch_of(TEXTS), replace(artifact, gate_kind="none")
    with steering(adapter, constant):
        steered_BT = adapter.generate(batch, 6)
    assert torch.equal(adapter.generate(batch, 6, ExactSteering(adapter, batch, constant)), steered_BT)
    assert not torch.equal(adapter.generate(batch, 6), steered_BT)

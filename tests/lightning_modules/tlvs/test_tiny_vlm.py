import pytest
import torch
from torch import Tensor

from datamodules.scenes.text import captions
from datamodules.scenes.vocabulary import WORDS, encode
from datamodules.scenes.world import SceneWorld, from_bytes
from lightning_modules.tlvs.tiny_vlm import KeyValueCache, PatchEncoder, TinyVLM, response_mask, who_sees_whom


@pytest.fixture(scope="module")
def model() -> TinyVLM:
    """Random weights so large that every mask matters."""
    torch.manual_seed(0)
    model = TinyVLM(len(WORDS), max_length=40).eval()
    with torch.no_grad():
        for parameter in model.blocks.parameters():
            if parameter.dim() == 2:
                parameter.mul_(2.0)
    return model


@pytest.fixture(scope="module")
def images() -> Tensor:
    return torch.from_numpy(from_bytes(SceneWorld().scenes(4, "x").pixels))


@pytest.fixture(scope="module")
def texts() -> Tensor:
    return torch.from_numpy(captions(SceneWorld().scenes(4, "x"))[0]).long()[:, :20]


def close(one: Tensor, other: Tensor) -> bool:
    return torch.allclose(one, other, atol=1e-5, rtol=1e-5)


def test_size():
    assert sum(parameter.numel() for parameter in TinyVLM(len(WORDS)).parameters()) == pytest.approx(200_000, rel=0.05)


def test_words_see_the_image_themselves_and_what_came_before(model: TinyVLM, images: Tensor, texts: Tensor):
    logits = model(texts, images)
    assert logits.shape == (*texts.shape, len(WORDS))
    changed = texts.clone()
    changed[:, 12] = (changed[:, 12] + 1) % len(WORDS)
    other = model(changed, images)
    assert close(other[:, :12], logits[:, :12])
    assert not any(close(other[:, t], logits[:, t]) for t in range(12, 20))
    assert not close(model(texts, images.flip(0))[:, 0], logits[:, 0])


def test_the_visual_block_attends_to_itself_alone(model: TinyVLM, images: Tensor, texts: Tensor):
    states: list[Tensor] = []
    handle = model.blocks[-1].register_forward_hook(lambda module, arguments, output: states.append(output))
    changed = images.clone()
    changed[:, :, 24:, 24:] += 1.0  # the last patch
    for pixels, words in ((images, texts), (images, texts.flip(1)), (changed, texts)):
        model(words, pixels)
    handle.remove()
    assert states[0].shape == (4, 16 + 20, 64)
    assert close(states[0][:, :16], states[1][:, :16]), "no word reaches it"
    assert not close(states[0][:, 0], states[2][:, 0]), "the last patch reaches the first"


def test_mask_by_hand():
    visible = torch.tensor([[True, True, False, True], [False, False, True, True]])  # two visual tokens, two words
    mask = who_sees_whom(visible, new=4, visual=2)[:, 0].int()
    assert mask[0].tolist() == [[1, 1, 0, 0], [1, 1, 0, 0], [1, 1, 1, 0], [1, 1, 0, 1]]
    assert mask[1].tolist() == [[1, 1, 0, 0], [1, 1, 0, 0], [0, 0, 1, 0], [0, 0, 1, 1]]
    assert who_sees_whom(visible, new=1, visual=0)[:, 0].tolist() == [[[True, True, False, True]], [[False, False, True, True]]]


def test_hidden_and_left_out_images_are_the_same_to_the_words(model: TinyVLM, images: Tensor, texts: Tensor):
    no_image = torch.tensor([True, False, True, False])
    mixed, seen, dropped = model(texts, images, no_image=no_image), model(texts, images), model(texts)
    assert close(mixed[no_image], dropped[no_image])
    assert close(mixed[~no_image], seen[~no_image])
    assert not close(seen[no_image], dropped[no_image])
    hidden = torch.ones(4, dtype=torch.bool)
    assert close(model(texts, images, no_image=hidden), model(texts, images.flip(0), no_image=hidden))
    prompt = texts[:, :1]
    assert model.generate(prompt, images, 8, no_image=hidden).equal(model.generate(prompt, None, 8))


def test_steps_with_a_cache_equal_one_pass(model: TinyVLM, images: Tensor, texts: Tensor):
    no_image = torch.tensor([True, False, False, False])
    whole, cache = model(texts, images, no_image=no_image), KeyValueCache()
    parts = [model(texts[:, :5], images, no_image=no_image, cache=cache)]
    parts += [model(texts[:, t : t + 1], cache=cache) for t in range(5, 20)]
    assert close(torch.cat(parts, dim=1), whole)


def recomputed(model: TinyVLM, prompt: Tensor, pixels: Tensor, steps: int) -> Tensor:
    words = prompt
    for _ in range(steps):
        words = torch.cat([words, model(words, pixels)[:, -1].argmax(dim=-1, keepdim=True)], dim=1)
    return words[:, prompt.shape[1] :]


def until_the_end(row: Tensor, eos: int) -> list[int]:
    words = row.tolist()
    return words[: words.index(eos) + 1] if eos in words else words


def test_generation_equals_full_recompute(model: TinyVLM, images: Tensor):
    prompt = torch.tensor([encode("<qa> is there a star ?")]).expand(4, -1)
    found, expected = model.generate(prompt, images, 20), recomputed(model, prompt, images, 20)
    assert found.shape[1] <= 20
    for one, other in zip(found, expected, strict=True):
        assert until_the_end(one, model.eos_id) == until_the_end(other, model.eos_id)
    assert len({tuple(row) for row in found.tolist()}) > 1, "the images tell"


def test_padding_in_front_changes_nothing(model: TinyVLM, images: Tensor):
    short, long = encode("<cap>"), encode("<qa> is there a star ?")
    padded = torch.tensor([[0] * 5 + short, long])
    attention = torch.tensor([[False] * 5 + [True], [True] * 6])
    both = model.generate(padded, images[:2], 12, attention_mask=attention)
    alone = [model.generate(torch.tensor([prompt]), images[i : i + 1], 12) for i, prompt in enumerate((short, long))]
    for one, other in zip(both, alone, strict=True):
        assert until_the_end(one, model.eos_id) == until_the_end(other[0], model.eos_id)
    logits = model(padded, images[:2], attention_mask=attention)
    assert close(logits[0, 5], model(torch.tensor([short]), images[:1])[0, 0])


def test_generation_stops_at_the_end_and_pads(model: TinyVLM, images: Tensor):
    forced = {0: [9, 1, 9, 9], 1: [9, 9, 1, 9]}

    def processor(words: Tensor, logits: Tensor) -> Tensor:
        step = words.shape[1] - 1
        scores = torch.full_like(logits, -1.0)
        for row, chosen in forced.items():
            scores[row, chosen[step]] = 1.0
        return scores

    prompt = torch.tensor([encode("<cap>")] * 2)
    assert model.generate(prompt, images[:2], 10, processor).tolist() == [[9, 1, 0], [9, 9, 1]]
    assert model.generate(prompt, images[:2], 2, processor).tolist() == [[9, 1], [9, 9]]


def test_no_gradient_reaches_the_encoder(model: TinyVLM, images: Tensor, texts: Tensor):
    model(texts, images).sum().backward()
    assert all(parameter.grad is None for parameter in model.encoder.parameters())
    assert all(parameter.grad is not None for name, parameter in model.named_parameters() if not name.startswith("encoder"))
    model.zero_grad()


def test_patches_are_read_row_by_row():
    encoder = PatchEncoder(64)
    image = torch.randn(1, 3, 32, 32)
    changed = image.clone()
    changed[:, :, 8:16, 16:24] = 0.0
    differ = (encoder(image) - encoder(changed)).abs().sum(dim=-1)[0] > 0
    assert differ.nonzero().flatten().tolist() == [6]
    by_hand = encoder.out(torch.nn.functional.gelu(encoder.into((image[0, :, 8:16, 16:24].flatten() - 0.45) / 0.2)))
    assert close(encoder(image)[0, 6], by_hand)


def test_response_mask_by_hand():
    words = torch.tensor([[2, 7, 8, 1, 0], [3, 8, 7, 5, 1]])
    mask = response_mask(words, torch.tensor([1, 3]))
    assert mask.tolist() == [[True, True, True, False, False], [False, False, True, True, False]]


def test_refusals(model: TinyVLM, images: Tensor, texts: Tensor):
    with pytest.raises(ValueError, match="41 words is longer than max_length=40"):
        model(torch.zeros(1, 41, dtype=torch.long))
    cache = KeyValueCache()
    model(texts, images, cache=cache)
    with pytest.raises(ValueError, match="pass pixels with the prompt only"):
        model(texts, images, cache=cache)
    with pytest.raises(ValueError, match="a text of 41 words"):
        model(torch.zeros(4, 21, dtype=torch.long), cache=cache)
    with pytest.raises(ValueError, match="padding_side='left'"):
        model.generate(texts[:1, :2], images[:1], attention_mask=torch.tensor([[True, False]]))
    with pytest.raises(ValueError, match="expected \\[3, 32, 32\\]"):
        model(texts, images[:, :, :16])
    with pytest.raises(ValueError, match="patch=7"):
        PatchEncoder(64, patch=7)

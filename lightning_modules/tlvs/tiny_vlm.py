"""A vision-language model small enough to be trained in minutes (plain torch).

Legend: B batch, T words, N visual tokens, P = N + T new positions, S positions seen so far, d width, V vocabulary, L layers.
"""

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn.functional import gelu, scaled_dot_product_attention

from lightning_modules.networks.attention import SelfAttention
from lightning_modules.networks.gelu import GELUFeedForward

IMAGE_SIDE = 32
PIXEL_MEAN, PIXEL_SCALE = 0.45, 0.2


class KeyValueCache:
    """What a decoder has to remember of the positions that it has seen.

    Attributes:
        keys_values: keys and values of each layer, ``[B, H, S, D]`` each; empty before the first pass.
        visible_BS: which positions the text may see.
        words_B: words so far, without padding.
        length: words so far, with padding.
    """

    def __init__(self) -> None:
        self.keys_values: list[tuple[Tensor, Tensor]] = []
        self.visible_BS: Tensor | None = None
        self.words_B: Tensor | None = None
        self.length = 0

    def extend(self, layer: int, key_BHPD: Tensor, value_BHPD: Tensor) -> tuple[Tensor, Tensor]:
        """Append keys and values of a layer's new positions and return those of all, ``[B, H, S, D]``."""
        if layer == len(self.keys_values):
            self.keys_values.append((key_BHPD, value_BHPD))
        else:
            before = self.keys_values[layer]
            self.keys_values[layer] = (torch.cat([before[0], key_BHPD], dim=2), torch.cat([before[1], value_BHPD], dim=2))
        return self.keys_values[layer]


class CachedAttention(SelfAttention):
    """Self-attention without rotation that can go on from a cache.

    Args:
        layer: its number.
        d_model: width d.
        num_heads: heads.
    """

    def __init__(self, layer: int, d_model: int, num_heads: int) -> None:
        super().__init__(d_model, num_heads)
        self.layer = layer

    def forward(self, x_BPd: Tensor, mask_B1PS: Tensor, cache: KeyValueCache | None = None) -> Tensor:  # type: ignore[override]
        """Return the attended values, ``[B, P, d]``.

        Args:
            x_BPd: new positions.
            mask_B1PS: True where a new position attends to a position seen so far, the new ones last.
            cache: what was seen before; the new positions are added.
        """
        query, key, value = (
            layer(x_BPd).unflatten(-1, (-1, self.head_dim)).transpose(1, 2) for layer in (self.query, self.key, self.value)
        )
        if cache is not None:
            key, value = cache.extend(self.layer, key, value)
        y_BHPD = scaled_dot_product_attention(query, key, value, attn_mask=mask_B1PS)
        return self.output(y_BHPD.transpose(1, 2).flatten(2))


class VLMBlock(nn.Module):
    """Pre-norm block: ``x + attention(norm(x))``, then ``x + feed_forward(norm(x))``; returns the residual stream.

    Args:
        layer: its number.
        d_model: width d; the feed-forward network is 4 d wide.
        num_heads: heads.
    """

    def __init__(self, layer: int, d_model: int, num_heads: int) -> None:
        super().__init__()
        self.attention_norm, self.feed_forward_norm = nn.LayerNorm(d_model), nn.LayerNorm(d_model)
        self.attention = CachedAttention(layer, d_model, num_heads)
        self.feed_forward = GELUFeedForward(d_model, 4 * d_model)

    def forward(self, x_BPd: Tensor, mask_B1PS: Tensor, cache: KeyValueCache | None = None) -> Tensor:
        x_BPd = x_BPd + self.attention(self.attention_norm(x_BPd), mask_B1PS, cache)
        return x_BPd + self.feed_forward(self.feed_forward_norm(x_BPd))


class PatchEncoder(nn.Module):
    """A two-layer perceptron that sees one square patch at a time: the eyes of :class:`TinyVLM`.

    Args:
        d_model: width d of a visual token.
        patch: side of a patch in pixels, a divisor of 32.
        hidden: units between.

    Raises:
        ValueError: if the patches do not tile the image.
    """

    def __init__(self, d_model: int, patch: int = 8, hidden: int = 128) -> None:
        super().__init__()
        if patch < 1 or IMAGE_SIDE % patch:
            raise ValueError(f"patch={patch} does not divide the {IMAGE_SIDE} pixels of an image: use a divisor")
        self.patch, self.tokens = patch, (IMAGE_SIDE // patch) ** 2
        self.into, self.out = nn.Linear(3 * patch**2, hidden), nn.Linear(hidden, d_model)

    def forward(self, pixels_B3HW: Tensor) -> Tensor:
        """Return the visual tokens, row by row, ``[B, N, d]``.

        Raises:
            ValueError: if the images have another size.
        """
        if pixels_B3HW.shape[1:] != (3, IMAGE_SIDE, IMAGE_SIDE):
            raise ValueError(f"images have shape {list(pixels_B3HW.shape[1:])}, expected [3, {IMAGE_SIDE}, {IMAGE_SIDE}]")
        scaled_B3HW = (pixels_B3HW - PIXEL_MEAN) / PIXEL_SCALE
        patches = scaled_B3HW.unfold(2, self.patch, self.patch).unfold(3, self.patch, self.patch)  # [B, 3, rows, columns, p, p]
        return self.out(gelu(self.into(patches.permute(0, 2, 3, 1, 4, 5).flatten(3).flatten(1, 2))))


class TinyVLM(nn.Module):
    """A decoder that sees 16 visual tokens in front of its words.

    Visual tokens attend to each other; a word attends to all visual tokens, to itself and to the words before it. Words have
    learned positions of their own, so that a word without image is where it would be with one: leaving the visual tokens out and
    hiding them from the words is the same to the words. No gradient reaches the encoder, which is trained apart.

    Args:
        vocab_size: words V.
        d_model: width d.
        num_layers: blocks L.
        num_heads: heads.
        max_length: most words of a text.
        patch: side of the patch of a visual token.
        pad_id: id of padding.
        eos_id: id with which a response ends.
    """

    def __init__(
        self,
        vocab_size: int,
        d_model: int = 64,
        num_layers: int = 3,
        num_heads: int = 4,
        max_length: int = 80,
        patch: int = 8,
        pad_id: int = 0,
        eos_id: int = 1,
    ) -> None:
        super().__init__()
        self.config = {
            **{"vocab_size": vocab_size, "d_model": d_model, "num_layers": num_layers, "num_heads": num_heads},
            **{"max_length": max_length, "patch": patch, "pad_id": pad_id, "eos_id": eos_id},
        }
        self.pad_id, self.eos_id, self.max_length = pad_id, eos_id, max_length
        self.encoder = PatchEncoder(d_model, patch)
        self.embedding = nn.Embedding(vocab_size, d_model)
        self.word_positions = nn.Parameter(torch.empty(max_length, d_model))
        self.visual_positions = nn.Parameter(torch.empty(self.encoder.tokens, d_model))
        self.blocks = nn.ModuleList(VLMBlock(layer, d_model, num_heads) for layer in range(num_layers))
        self.norm = nn.LayerNorm(d_model)
        self.head = nn.Linear(d_model, vocab_size, bias=False)
        for table in (self.embedding.weight, self.word_positions, self.visual_positions):
            nn.init.normal_(table, std=0.1)

    def forward(
        self,
        input_ids: Tensor,
        pixels: Tensor | None = None,
        no_image: Tensor | None = None,
        cache: KeyValueCache | None = None,
        attention_mask: Tensor | None = None,
    ) -> Tensor:
        """Return the logits of the next word at each word, ``[B, T, V]``.

        Args:
            input_ids: words, ``[B, T]``; with a cache that is in use only the new ones.
            pixels: images, ``[B, 3, 32, 32]``, in the first pass of a cache only; None: no visual tokens.
            no_image: True where the words do not see the visual tokens, bool ``[B]``.
            cache: what was seen before; the new positions are added.
            attention_mask: False at padding, bool ``[B, T]``; needed for padding in front of a text, padding behind is harmless.

        Raises:
            ValueError: if the text is too long, or an image comes in the middle of it.
        """
        goes_on = cache is not None and cache.visible_BS is not None
        if goes_on and pixels is not None:
            raise ValueError("the cache has an image or none already: pass pixels with the prompt only")
        length = input_ids.shape[1] + (cache.length if cache is not None else 0)
        if length > self.max_length:
            raise ValueError(f"a text of {length} words is longer than max_length={self.max_length}")
        given_BT = torch.ones_like(input_ids, dtype=torch.bool) if attention_mask is None else attention_mask.bool()
        count_BT = given_BT.cumsum(dim=1)
        if cache is not None and cache.words_B is not None:
            count_BT = count_BT + cache.words_B[:, None]
        x_BPd = self.embedding(input_ids) + self.word_positions[(count_BT - 1).clamp_min(0)]
        visible_BS, visual = given_BT, 0
        if pixels is not None:
            visual_BNd = self.encoder(pixels).detach() + self.visual_positions
            visual = visual_BNd.shape[1]
            seen_B = torch.ones_like(given_BT[:, 0]) if no_image is None else ~no_image
            visible_BS = torch.cat([seen_B[:, None].expand(-1, visual), given_BT], dim=1)
            x_BPd = torch.cat([visual_BNd, x_BPd], dim=1)
        if cache is not None:
            if cache.visible_BS is not None:
                visible_BS = torch.cat([cache.visible_BS, visible_BS], dim=1)
            cache.visible_BS, cache.words_B, cache.length = visible_BS, count_BT[:, -1], length
        mask_B1PS = who_sees_whom(visible_BS, x_BPd.shape[1], visual)
        for block in self.blocks:
            x_BPd = block(x_BPd, mask_B1PS, cache)
        return self.head(self.norm(x_BPd[:, visual:]))

    @torch.no_grad()
    def generate(
        self,
        input_ids: Tensor,
        pixels: Tensor | None = None,
        max_new_tokens: int = 70,
        processor: Callable[[Tensor, Tensor], Tensor] | None = None,
        no_image: Tensor | None = None,
        attention_mask: Tensor | None = None,
    ) -> Tensor:
        """Return the greedy responses, ``[B, up to max_new_tokens]``, padded behind ``<eos>``.

        Args:
            input_ids: prompts, ``[B, T]``, with padding in front if their lengths differ.
            pixels: images, ``[B, 3, 32, 32]``, or None.
            max_new_tokens: most words of a response.
            processor: from the words so far ``[B, T]`` and the logits of the next one ``[B, V]`` to the scores to choose by.
            no_image: True where the words do not see the image, bool ``[B]``.
            attention_mask: False at padding, bool ``[B, T]``.

        Raises:
            ValueError: if padding stands behind a prompt.
        """
        if attention_mask is not None and not attention_mask[:, -1].all():
            raise ValueError("prompts are padded behind their end, where the response begins: set padding_side='left'")
        cache, words_BT, prompt = KeyValueCache(), input_ids, input_ids.shape[1]
        logits_BTV = self(input_ids, pixels, no_image=no_image, cache=cache, attention_mask=attention_mask)
        ended_B = torch.zeros_like(input_ids[:, 0], dtype=torch.bool)
        for step in range(max_new_tokens):
            scores_BV = logits_BTV[:, -1]
            if processor is not None:
                scores_BV = processor(words_BT, scores_BV)
            next_B = scores_BV.argmax(dim=-1).masked_fill(ended_B, self.pad_id)
            words_BT = torch.cat([words_BT, next_B[:, None]], dim=1)
            ended_B = ended_B | (next_B == self.eos_id)
            if step + 1 == max_new_tokens or ended_B.all():
                break
            logits_BTV = self(next_B[:, None], cache=cache)
        return words_BT[:, prompt:]


def who_sees_whom(visible_BS: Tensor, new: int, visual: int) -> Tensor:
    """Return which new positions attend to which positions so far, bool ``[B, 1, P, S]``.

    Args:
        visible_BS: which positions the words may see.
        new: new positions P, the last of S.
        visual: visual tokens among them, the first.
    """
    seen = visible_BS.shape[1]
    place_P = torch.arange(seen - new, seen, device=visible_BS.device)
    key_S = torch.arange(seen, device=visible_BS.device)
    word_BPS = visible_BS[:, None] & (key_S <= place_P[:, None])
    is_visual_P1 = (place_P < visual)[:, None] if visual else torch.zeros_like(place_P, dtype=torch.bool)[:, None]
    mask_BPS = torch.where(is_visual_P1, key_S < visual, word_BPS)
    return (mask_BPS | (key_S == place_P[:, None])).unsqueeze(1)  # itself: a row must not be empty


def response_mask(input_ids: Tensor, prompt_length: Tensor, pad_id: int = 0) -> Tensor:
    """Return where the next word belongs to the response, bool ``[B, T]``: from the last word of the prompt to the last but one.

    Args:
        input_ids: texts with padding behind, ``[B, T]``.
        prompt_length: words of each prompt, ``[B]``.
        pad_id: id of padding.
    """
    place_T = torch.arange(input_ids.shape[1], device=input_ids.device)
    length_B = (input_ids != pad_id).sum(dim=1)
    return (place_T >= prompt_length[:, None] - 1) & (place_T < length_B[:, None] - 1)

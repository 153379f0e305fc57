"""What steering costs a token: a Llava of realistic depth and small width decodes with steering, without, and contrasted."""

from functools import cache, partial
from typing import Any

from benchmarks.speed import Case, installed_version
from benchmarks.timing import PairedTimes, Timed, measure

TRANSFORMERS = "transformers"
LAYERS, WIDTH, ROWS, PROMPT, NEW = 32, 256, 4, 32, 32
SIDE, PATCHES = 32, 64


@cache
def model_and_batch() -> tuple[Any, dict[str, Any]]:
    """Return an adapter of a model with random weights, and prompts with images."""
    import torch
    from transformers import CLIPVisionConfig, LlamaConfig, LlavaConfig, LlavaForConditionalGeneration

    from lightning_modules.tlvs.hf_adapter import HFVLMAdapter

    torch.manual_seed(0)
    sizes: dict[str, Any] = {"hidden_size": WIDTH, "intermediate_size": 688, "num_attention_heads": 8}
    vocabulary, placeholder = 2_000, 1_999
    text = LlamaConfig(**sizes, vocab_size=vocabulary, num_hidden_layers=LAYERS, eos_token_id=None, pad_token_id=0)
    vision = CLIPVisionConfig(**sizes, num_hidden_layers=2, image_size=SIDE, patch_size=4, projection_dim=WIDTH)
    config = LlavaConfig(
        vision_config=vision,
        text_config=text,
        image_token_index=placeholder,
        image_seq_length=PATCHES,
        vision_feature_select_strategy="default",
    )
    words = torch.randint(1, placeholder, (ROWS, PROMPT))
    ids = torch.cat([torch.full((ROWS, PATCHES), placeholder), words], dim=1)
    batch = {"input_ids": ids, "attention_mask": torch.ones_like(ids), "pixel_values": torch.randn(ROWS, 3, SIDE, SIDE)}
    return HFVLMAdapter(LlavaForConditionalGeneration(config)), batch


def decoding(method: str) -> Timed:
    """Return the decoding of responses with a method; TLVS steers the middle half of the layers and gates each step."""
    import torch

    from lightning_modules.tlvs.extraction import TLVSExtractor
    from lightning_modules.tlvs.steering_method import SteeringMethod

    adapter, batch = model_and_batch()
    steering = SteeringMethod(TLVSExtractor(adapter), method)  # type: ignore[arg-type]
    torch.nn.init.normal_(steering.vectors_Ld, std=0.1)
    return partial(steering.generate, batch, NEW)


def beside(method: str, peer: str, pairs: int) -> PairedTimes:
    return measure(decoding(method), decoding(peer), pairs, warm_up=1)


NAME = f"decoding of {NEW} tokens, Llava of {LAYERS} layers, width {WIDTH}, {ROWS} prompts"
VERSION = installed_version(TRANSFORMERS)
PAIRS = (
    ("steering", "steering", "plain generate", "none"),
    ("steering", "steering", "VCD", "vcd"),
    ("VCD", "vcd", "plain generate", "none"),
)
CASES = tuple(
    Case(f"{title}, {NAME}", peer_title, VERSION, partial(beside, method, peer), 9, needs_package=TRANSFORMERS)
    for title, method, peer_title, peer in PAIRS
)

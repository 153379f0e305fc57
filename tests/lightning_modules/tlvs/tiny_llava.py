"""A Llava of a few thousand random weights with a processor whose words are whole words."""

from pathlib import Path
from typing import Any

import torch

SPECIAL = ["<pad>", "<s>", "</s>", "<unk>", "<image>"]
WORDS = [*SPECIAL, *"is there a dog cat car cup tree boat ? yes no not and . the image of in".split()]  # noqa: SIM905 a list of words


def tiny_llava(vocab_size: int, image_token: int, eos_token_id: int | None) -> Any:
    """Return the model; an image of 8 x 8 pixels is four tokens."""
    import transformers

    sizes: dict[str, Any] = {"hidden_size": 16, "intermediate_size": 32, "num_attention_heads": 2}
    vision = transformers.CLIPVisionConfig(**sizes, num_hidden_layers=2, projection_dim=16, image_size=8, patch_size=4)
    text = transformers.LlamaConfig(
        **sizes,
        vocab_size=vocab_size,
        num_hidden_layers=4,
        num_key_value_heads=2,
        max_position_embeddings=128,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=eos_token_id,
        initializer_range=0.3,
    )
    config = transformers.LlavaConfig(
        vision_config=vision,
        text_config=text,
        image_token_index=image_token,
        image_seq_length=4,
        vision_feature_select_strategy="default",
    )
    return transformers.LlavaForConditionalGeneration(config)


def save_tiny_llava(folder: Path) -> None:
    """Write model and processor, as ``save_pretrained`` does."""
    import transformers
    from tokenizers import Tokenizer, models, pre_tokenizers

    torch.manual_seed(0)
    ids = {word: number for number, word in enumerate(WORDS)}
    tiny_llava(len(WORDS), ids["<image>"], eos_token_id=2).save_pretrained(folder)
    words = Tokenizer(models.WordLevel(ids, unk_token="<unk>"))
    words.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer = transformers.PreTrainedTokenizerFast(
        tokenizer_object=words, pad_token="<pad>", bos_token="<s>", eos_token="</s>", unk_token="<unk>"
    )
    tokenizer.add_special_tokens({"additional_special_tokens": ["<image>"]})
    images = transformers.CLIPImageProcessor(size={"shortest_edge": 8}, crop_size={"height": 8, "width": 8})
    transformers.LlavaProcessor(
        image_processor=images,
        tokenizer=tokenizer,
        patch_size=4,
        vision_feature_select_strategy="default",
        image_token="<image>",
        num_additional_image_tokens=1,
    ).save_pretrained(folder)

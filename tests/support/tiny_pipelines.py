"""Pipelines of diffusers with random weights, small enough to run on a CPU in a fraction of a second."""

from pathlib import Path
from typing import Any

import diffusers
import torch

LATENT: dict[str, Any] = {"beta_start": 0.00085, "beta_end": 0.012, "beta_schedule": "scaled_linear"}
BLOCKS: dict[str, Any] = {"layers_per_block": 1, "norm_num_groups": 4}


def unconditional() -> Any:
    """Return a pipeline of grey images of 8 x 8."""
    torch.manual_seed(0)
    down, up = ("DownBlock2D",) * 2, ("UpBlock2D",) * 2
    net = diffusers.UNet2DModel(8, 1, 1, block_out_channels=(8, 16), down_block_types=down, up_block_types=up, **BLOCKS)
    return diffusers.DDPMPipeline(net, diffusers.DDPMScheduler())


def autoencoder() -> Any:
    """Return an autoencoder of images of 16 x 16 with latents of 8 x 8."""
    down, up = ("DownEncoderBlock2D",) * 2, ("UpDecoderBlock2D",) * 2
    sizes: dict[str, Any] = {"block_out_channels": (8, 8), "latent_channels": 4, "sample_size": 16}
    return diffusers.AutoencoderKL(3, 3, down_block_types=down, up_block_types=up, **sizes, **BLOCKS)


def of_classes() -> Any:
    """Return a diffusion transformer of 1 000 classes."""
    torch.manual_seed(0)
    sizes: dict[str, Any] = {"num_attention_heads": 2, "attention_head_dim": 4, "num_layers": 1, "patch_size": 2}
    net = diffusers.DiTTransformer2DModel(in_channels=4, out_channels=4, sample_size=8, num_embeds_ada_norm=1000, **sizes)
    return diffusers.DiTPipeline(net, autoencoder(), diffusers.DDIMScheduler())


def of_texts() -> Any:
    """Return Stable Diffusion in small, which knows letters."""
    from transformers import CLIPTextConfig, CLIPTextModel, CLIPTokenizer

    torch.manual_seed(0)
    letters = [chr(code) for code in range(ord("a"), ord("z") + 1)]
    words = [*letters, *(f"{letter}</w>" for letter in letters), "<|startoftext|>", "<|endoftext|>"]
    tokenizer = CLIPTokenizer(vocab={word: i for i, word in enumerate(words)}, merges=[], model_max_length=16)
    ends = {"bos_token_id": 52, "eos_token_id": 53, "pad_token_id": 53}
    sizes = {"hidden_size": 8, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    text = CLIPTextModel(CLIPTextConfig(vocab_size=len(words), max_position_embeddings=16, **sizes, **ends))
    net = diffusers.UNet2DConditionModel(
        8,
        4,
        4,
        block_out_channels=(8, 16),
        down_block_types=("DownBlock2D", "CrossAttnDownBlock2D"),
        up_block_types=("CrossAttnUpBlock2D", "UpBlock2D"),
        cross_attention_dim=8,
        attention_head_dim=4,
        **BLOCKS,
    )
    scheduler = diffusers.PNDMScheduler(**LATENT, steps_offset=1, skip_prk_steps=True)
    parts = {"safety_checker": None, "feature_extractor": None, "requires_safety_checker": False}
    pipeline = diffusers.StableDiffusionPipeline(autoencoder(), text, tokenizer, net, scheduler, **parts)
    pipeline.set_progress_bar_config(disable=True)
    return pipeline


def saved(pipeline: Any, folder: Path) -> str:
    """Save a pipeline and return its folder."""
    pipeline.save_pretrained(folder)
    return str(folder)

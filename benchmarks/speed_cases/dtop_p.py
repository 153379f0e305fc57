"""Mixtures of experts with different dispatch, beside the sparse block of transformers, and a language model beside a dense one."""

from dataclasses import dataclass
from functools import partial
from typing import Any

from benchmarks.speed import Case, installed_version
from benchmarks.timing import PairedTimes, Timed, measure

TRANSFORMERS = "transformers"


@dataclass(frozen=True)
class Shape:
    """Sizes of a layer: N experts of width f, k of which a token uses, on S tokens with d features."""

    experts: int
    hidden: int
    active: int
    width: int = 128
    tokens: int = 2048

    def __str__(self) -> str:
        return f"N {self.experts}, f {self.hidden}, k {self.active}, d {self.width}, {self.tokens:,} tokens".replace(",0", " 0")


FINE, COARSE, LARGE = Shape(64, 32, 8), Shape(16, 64, 2), Shape(64, 256, 8, 512, 1024)
TYPES: dict[Shape, tuple[str, ...]] = {FINE: ("float32", "bfloat16"), COARSE: ("float32", "bfloat16"), LARGE: ("float32",)}
"""A CPU without hardware for bfloat16 needs half a minute for a step of the largest."""


def ours(shape: Shape, dtype: str, dispatch: str = "grouped", mode: str = "topk") -> Timed:
    """Return a forward and backward pass of our layer."""
    import torch

    from lightning_modules import MoEFeedForward
    from lightning_modules.dtop_p.closed_form import initial_threshold

    torch.manual_seed(0)
    layer = MoEFeedForward(
        shape.width,
        shape.hidden,
        shape.experts,
        mode=mode,
        k=shape.active if mode == "topk" else None,
        dispatch=dispatch,
    ).to(getattr(torch, dtype))
    p = None if mode == "topk" else torch.tensor(initial_threshold(shape.active, shape.experts))
    return _passes(lambda x: layer(x, p)[0], layer, shape, dtype)


def theirs(shape: Shape, dtype: str, experts: str) -> Timed:
    """Return the same of the sparse block of Mixtral, whose experts are computed ``eager`` or by ``grouped_mm``."""
    import torch
    from transformers import MixtralConfig
    from transformers.models.mixtral.modeling_mixtral import MixtralSparseMoeBlock

    torch.manual_seed(0)
    options: dict[str, Any] = {
        "hidden_size": shape.width,
        "intermediate_size": shape.hidden,
        "num_local_experts": shape.experts,
        "num_experts_per_tok": shape.active,
        "experts_implementation": experts,
    }
    block = MixtralSparseMoeBlock(MixtralConfig(**options))
    for parameter in block.parameters():
        torch.nn.init.normal_(parameter, std=0.02)
    block.to(getattr(torch, dtype))
    return _passes(block, block, shape, dtype)


def _passes(call: Any, layer: Any, shape: Shape, dtype: str) -> Timed:
    import torch

    x_1Sd = torch.randn(1, shape.tokens, shape.width, dtype=getattr(torch, dtype), requires_grad=True)

    def step() -> None:
        call(x_1Sd).square().sum().backward()
        layer.zero_grad()
        x_1Sd.grad = None

    return step


def language_step(routing: str, options: dict[str, Any], rows: int, length: int) -> Timed:
    """Return a training step of a language model: forward, backward, controller, optimiser."""
    import torch

    from lightning_modules import MoELanguageModule

    torch.manual_seed(0)
    vocabulary = 512
    module = MoELanguageModule(vocabulary, routing=routing, **options)
    optimizer = torch.optim.AdamW(module.parameters(), lr=1e-4)
    tokens = torch.randint(vocabulary, (rows, length + 1))

    def step() -> None:
        logits, layers = module.decoder(tokens[:, :-1], module.thresholds())
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
        if module.controller is not None:
            for layer, aux in enumerate(layers):
                module.controller.observe(layer, aux.counts)
            loss = loss + 1e-2 * torch.stack([aux.load_balance for aux in layers]).mean()
        loss.backward()
        if module.controller is not None:
            module.controller.step()
        optimizer.step()
        optimizer.zero_grad()

    return step


def beside_dispatch(shape: Shape, dtype: str, dispatch: str, pairs: int) -> PairedTimes:
    return measure(ours(shape, dtype), ours(shape, dtype, dispatch), pairs, warm_up=1)


def beside_mixtral(shape: Shape, dtype: str, experts: str, pairs: int) -> PairedTimes:
    return measure(ours(shape, dtype), theirs(shape, dtype, experts), pairs, warm_up=1)


def beside_top_k(shape: Shape, dtype: str, pairs: int) -> PairedTimes:
    return measure(ours(shape, dtype, mode="dtopp"), ours(shape, dtype), pairs, warm_up=1)


def beside_dense(options: dict[str, Any], rows: int, length: int, pairs: int) -> PairedTimes:
    return measure(language_step("dtopp", options, rows, length), language_step("dense", options, rows, length), pairs, warm_up=1)


LANGUAGE: dict[str, dict[str, Any]] = {
    "d 64, 4 layers, 16 experts of 32, target 4": {},
    "d 256, 4 layers, 64 experts of 128, target 8": {"d_model": 256, "num_experts": 64, "target": 8, "expert_hidden": 128},
}
CASES = (
    *(
        Case(f"grouped layer, {shape}, {dtype}", f"{dispatch} dispatch", "", partial(beside_dispatch, shape, dtype, dispatch), 7)
        for shape, dispatches in {FINE: ("loop", "dense"), COARSE: ("loop", "dense"), LARGE: ("loop",)}.items()
        for dispatch in dispatches
        for dtype in TYPES[shape]
    ),
    *(
        Case(
            f"grouped layer, {shape}, {dtype}",
            f"transformers' Mixtral block, {experts}",
            installed_version(TRANSFORMERS),
            partial(beside_mixtral, shape, dtype, experts),
            7,
            needs_package=TRANSFORMERS,
        )
        for shape in (FINE, COARSE, LARGE)
        for experts in ("grouped_mm", "eager")
        for dtype in TYPES[shape]
    ),
    *(
        Case(f"DTop-p layer, {shape}, {dtype}", "our Top-k layer", "", partial(beside_top_k, shape, dtype), 7)
        for shape in (FINE, COARSE, LARGE)
        for dtype in TYPES[shape]
    ),
    *(
        Case(
            f"training step of 1 024 tokens, {name}",
            "dense model of as many operations",
            "",
            partial(beside_dense, options, 16, 64),
            7,
        )
        for name, options in LANGUAGE.items()
    ),
)

"""Edits of what modules return, at the positions that predict a response and nowhere else."""

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from lightning_modules.tlvs.adapter import hidden_state, with_hidden_state

Edit = Callable[[int, Tensor], Tensor]
"""From the number of a module and its output at the response positions ``[B, n, d]`` to that output edited."""


class ResponsePositions:
    """Which positions of a forward pass predict tokens of the response.

    While a response is decoded: the last one of the prompt and all later ones. With a cache a pass sees only the newest position;
    without, it sees the prompt again, which is recognised by its tokens. Where responses are given, :meth:`given` says it.
    """

    def __init__(self) -> None:
        self.newest = 1
        self._given: Tensor | None = None
        self._prompt: Tensor | None = None
        self._length = 0

    @contextmanager
    def given(self, mask_BT: Tensor) -> Iterator[None]:
        """Within the context, take the positions of ``mask_BT``, bool, aligned with the outputs at the right."""
        self._given = mask_BT
        try:
            yield
        finally:
            self._given = None

    def look_at_inputs(self, module: nn.Module, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> None:
        """Forward pre-hook of the model: find out which of its positions are new.

        Raises:
            ValueError: if the model is not given its tokens, or padding stands behind a prompt.
        """
        if self._given is not None:
            return
        tokens_BT = keywords.get("input_ids", arguments[0] if arguments else None)
        if tokens_BT is None:
            raise ValueError("steering follows a response by its input_ids: do not pass inputs_embeds alone")
        length = tokens_BT.shape[1]
        if length > 1 and self._goes_on(tokens_BT):
            self.newest += 1
        else:
            self.newest, self._prompt = 1, tokens_BT
            mask = keywords.get("attention_mask")
            if length > 1 and mask is not None and mask.ndim == 2 and not mask[:, -1].all():
                raise ValueError("prompts are padded behind their end, where the response begins: set padding_side='left'")
        self._length = length

    def edit(self, output: Any, change: Callable[[Tensor], Tensor]) -> Any:
        """Return a module's output, changed at the response positions."""
        state_BPd = hidden_state(output)
        if self._given is None:
            before = state_BPd.shape[1] - self.newest
            edited = torch.cat([state_BPd[:, :before], change(state_BPd[:, before:])], dim=1) if before else change(state_BPd)
        else:
            text = self._given.shape[1]
            before_BPd, text_BTd = state_BPd[:, :-text], state_BPd[:, -text:]
            changed_BTd = torch.where(self._given.unsqueeze(-1), change(text_BTd), text_BTd)
            edited = torch.cat([before_BPd, changed_BTd], dim=1)
        return with_hidden_state(output, edited)

    def _goes_on(self, tokens_BT: Tensor) -> bool:
        """Say whether a pass over several tokens repeats the prompt of the pass before and adds one token."""
        prompt = self._prompt
        if prompt is None or tokens_BT.shape != (len(prompt), self._length + 1):
            return False
        return bool(torch.equal(tokens_BT[:, : prompt.shape[1]], prompt))


@contextmanager
def response_edits(
    model: nn.Module, modules: Mapping[int, nn.Module], edit: Edit, positions: ResponsePositions | None = None
) -> Iterator[ResponsePositions]:
    """Within the context, change what modules of a model return at the response positions; afterwards no hook remains.

    Args:
        model: the whole model, whose inputs tell the positions.
        modules: the modules by their numbers, each with an output ``[B, P, d]``, alone or first in a tuple.
        edit: the change.
        positions: which positions are edited; by default those of one response after another.
    """
    if isinstance(model, torch._dynamo.eval_frame.OptimizedModule):
        warnings.warn("the model was compiled before it is steered, so hooks may be ignored: compile it afterwards", stacklevel=3)
    followed = positions or ResponsePositions()

    def hook_of(number: int) -> Callable[..., Any]:
        def hook(module: nn.Module, arguments: Any, output: Any) -> Any:
            return followed.edit(output, lambda state: edit(number, state))

        return hook

    handles: Sequence[Any] = [
        model.register_forward_pre_hook(followed.look_at_inputs, with_kwargs=True),
        *(module.register_forward_hook(hook_of(number)) for number, module in modules.items()),
    ]
    try:
        yield followed
    finally:
        for handle in handles:
            handle.remove()

"""Feed-forward experts, and four ways to bring the tokens to them.

Legend: S tokens, N experts, d features, f hidden width, M (token, expert) pairs in the order of the experts.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Literal, NamedTuple, get_args

import torch
from torch import Tensor, nn
from torch.nn import functional

Dispatch = Literal["grouped", "loop", "dense", "sort"]
Activation = Literal["swiglu", "gelu"]


def swiglu(h_2f: Tensor) -> Tensor:
    """Return ``silu(a) * b`` of the two halves a, b of the last axis."""
    gate_f, value_f = h_2f.chunk(2, dim=-1)
    return functional.silu(gate_f) * value_f


ACTIVATIONS: dict[str, tuple[Callable[[Tensor], Tensor], int]] = {"swiglu": (swiglu, 2), "gelu": (functional.gelu, 1)}


class Pairs(NamedTuple):
    """Which token goes to which expert, sorted by expert.

    Attributes:
        token: ``[M]``.
        gate: weight of the expert's output, ``[M]``.
        end: for each expert the number of pairs up to its last, ``[N]`` int32.
    """

    token: Tensor
    gate: Tensor
    end: Tensor


class Experts(nn.Module):
    r"""N feed-forward networks without bias, of which each token uses those that were chosen for it.

    .. math::
        y_t = \sum_{i \in S_t} g_{ti}\, E_i(x_t), \qquad
        E(x) = W_2 \bigl(\operatorname{silu}(W_{1a} x) \odot W_{1b} x\bigr) \text{ or } W_2 \operatorname{gelu}(W_1 x)

    No token is dropped. How tokens reach their experts (all give the same):

    - ``grouped``: gather the chosen pairs, one grouped matrix product; waits once for the device, to learn their number;
    - ``sort``: the same with the fixed number S·``most_experts`` of pairs, so nothing waits and nothing is compiled anew; unused
      pairs are computed with gate 0, so ``most_experts`` should be tight;
    - ``loop``: one matrix product an expert, as float64 always does;
    - ``dense``: every expert on every token; a reference for tests.

    Args:
        d_model: d.
        d_hidden: f.
        num_experts: N.
        activation: ``swiglu`` or ``gelu``.
        dispatch: see above.
        most_experts: experts that no token exceeds; needed by ``sort``.
        init_std: standard deviation of the initial weights.
        residual_scale: factor on it for :math:`W_2`, for instance :math:`1 / \sqrt{2 L}` in a network of L blocks.

    Shapes:
        - x: ``[S, d]``;
        - mask: ``[S, N]`` bool;
        - gates: ``[S, N]``, 0 outside the mask;
        - output: ``[S, d]``.

    Raises:
        ValueError: on an unknown option, if ``sort`` lacks ``most_experts``, or if the widths do not suit grouped products.
    """

    def __init__(
        self,
        d_model: int,
        d_hidden: int,
        num_experts: int,
        activation: Activation = "swiglu",
        dispatch: Dispatch = "grouped",
        most_experts: int | None = None,
        init_std: float = 0.02,
        residual_scale: float = 1.0,
    ) -> None:
        super().__init__()
        if activation not in ACTIVATIONS:
            raise ValueError(f"activation {activation!r} of the experts is unknown: use one of {', '.join(ACTIVATIONS)}")
        if dispatch not in get_args(Dispatch):
            raise ValueError(f"dispatch {dispatch!r} of the experts is unknown: use one of {', '.join(get_args(Dispatch))}")
        if dispatch == "sort" and most_experts is None:
            raise ValueError("dispatch='sort' needs a largest number of experts a token: give k_max")
        if dispatch == "grouped" and not hasattr(functional, "grouped_mm"):
            warnings.warn("this torch has no grouped_mm (2.10 or newer has): the experts run one after the other", stacklevel=2)
            dispatch = "loop"
        self.activation, widths = ACTIVATIONS[activation]
        self.dispatch, self.most_experts = dispatch, most_experts
        self.init_std, self.residual_scale = init_std, residual_scale
        self.w_in = nn.Parameter(torch.empty(num_experts, d_model, widths * d_hidden))
        self.w_out = nn.Parameter(torch.empty(num_experts, d_hidden, d_model))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw all weights anew."""
        nn.init.normal_(self.w_in, std=self.init_std)
        nn.init.normal_(self.w_out, std=self.init_std * self.residual_scale)

    def residual_weights(self) -> list[nn.Parameter]:
        """Return the matrices whose products are added to the residual stream."""
        return [self.w_out]

    def forward(self, x_Sd: Tensor, mask_SN: Tensor, gates_SN: Tensor) -> Tensor:
        return mixture(x_Sd, mask_SN, gates_SN, self.w_in, self.w_out, self.activation, self.dispatch, self.most_experts)


def mixture(
    x_Sd: Tensor,
    mask_SN: Tensor,
    gates_SN: Tensor,
    w_in: Tensor,
    w_out: Tensor,
    activation: Callable[[Tensor], Tensor],
    dispatch: Dispatch = "grouped",
    most_experts: int | None = None,
) -> Tensor:
    """Do what :class:`Experts` does, with matrices from anywhere.

    Args:
        x_Sd: tokens.
        mask_SN: chosen experts.
        gates_SN: their weights.
        w_in: first matrices, ``[N, d, ...]``.
        w_out: second matrices, ``[N, f, d]``.
        activation: maps ``[M, ...]`` to ``[M, f]``.
        dispatch: how tokens reach their experts.
        most_experts: experts that no token exceeds; needed by ``sort``.
    """
    device = x_Sd.device.type
    dtype = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else w_in.dtype
    x_Sd, w_in, w_out = x_Sd.to(dtype), w_in.to(dtype), w_out.to(dtype)
    if dispatch == "dense":
        y_NSd = activation(x_Sd @ w_in) @ w_out
        return torch.einsum("nsd,sn->sd", y_NSd, gates_SN.to(dtype))
    if dispatch == "sort":
        assert most_experts is not None
        pairs = fixed_pairs(mask_SN, gates_SN, most_experts)
    else:
        pairs = chosen_pairs(mask_SN, gates_SN)
    product = _product(dispatch, dtype, pairs)
    hidden_Mf = activation(product(x_Sd.index_select(0, pairs.token), w_in, pairs.end))
    weighted_Mf = (hidden_Mf * pairs.gate.unsqueeze(-1)).to(dtype)  # gates here, where a row is shorter
    y_Md = product(weighted_Mf, w_out, pairs.end).to(torch.promote_types(dtype, torch.float32))
    return y_Md.new_zeros(x_Sd.shape).index_add(0, pairs.token, y_Md).to(dtype)


def _product(dispatch: Dispatch, dtype: torch.dtype, pairs: Pairs) -> Callable[[Tensor, Tensor, Tensor], Tensor]:
    if dispatch == "loop" or dtype == torch.float64 or not hasattr(functional, "grouped_mm"):
        return product_by_loop
    if not torch.compiler.is_compiling() and pairs.token.numel() == 0:
        return product_by_loop  # the gradient of an empty grouped product fails
    return grouped_product


def grouped_product(a_Mk: Tensor, weight_Nkn: Tensor, end_N: Tensor) -> Tensor:
    """Multiply the rows of each expert by its matrix, ``[M, n]``.

    Raises:
        ValueError: if rows do not begin at multiples of 16 bytes.
    """
    for length in weight_Nkn.shape[1:]:
        if length * weight_Nkn.element_size() % 16:
            raise ValueError(
                f"grouped products need rows of whole 16 bytes, {length} numbers of {weight_Nkn.dtype} are not: "
                "take a width that is a multiple of 8, or dispatch='loop'"
            )
    if torch.compiler.is_compiling() and a_Mk.dtype == torch.float32:
        return _uncompiled_grouped_product(a_Mk, weight_Nkn, end_N)
    return functional.grouped_mm(a_Mk, weight_Nkn, offs=end_N)


@torch.compiler.disable
def _uncompiled_grouped_product(a_Mk: Tensor, weight_Nkn: Tensor, end_N: Tensor) -> Tensor:
    """Break the graph here: compiled graphs know grouped products in half precision only."""
    return functional.grouped_mm(a_Mk, weight_Nkn, offs=end_N)


def product_by_loop(a_Mk: Tensor, weight_Nkn: Tensor, end_N: Tensor) -> Tensor:
    """Do the same as :func:`grouped_product` one expert after the other."""
    sizes = end_N.diff(prepend=end_N.new_zeros(1)).tolist()
    return torch.cat([a @ weight for a, weight in zip(a_Mk.split(sizes), weight_Nkn.unbind(), strict=True)])


def chosen_pairs(mask_SN: Tensor, gates_SN: Tensor) -> Pairs:
    """List the chosen pairs; their number depends on the routing."""
    S = mask_SN.shape[0]
    flat_M = mask_SN.T.flatten().nonzero().squeeze(-1)
    gate_M = gates_SN.T.flatten().index_select(0, flat_M)
    return Pairs(flat_M % max(S, 1), gate_M, mask_SN.sum(dim=0).cumsum(dim=0).int())


def fixed_pairs(mask_SN: Tensor, gates_SN: Tensor, most_experts: int) -> Pairs:
    """List S·K pairs with K = ``most_experts``, whatever the routing; those not chosen have gate 0 and end the last expert's."""
    S, N = mask_SN.shape
    chosen_SK, expert_SK = mask_SN.int().topk(most_experts, dim=-1)
    expert_M = torch.where(chosen_SK > 0, expert_SK, N).flatten()
    order_M = expert_M.argsort(stable=True)
    gate_M = gates_SN.gather(-1, expert_SK).flatten().index_select(0, order_M)
    end_N = mask_SN.sum(dim=0).cumsum(dim=0).int()
    end_N = torch.cat([end_N[:-1], end_N.new_full((1,), S * most_experts)])
    return Pairs(order_M // most_experts, gate_M, end_N)

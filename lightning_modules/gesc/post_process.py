"""Post-processing of predicted classes with the labels of the training nodes, for any model of node classes."""

from typing import Literal

import torch
from torch import Tensor
from torch_geometric.nn import CorrectAndSmooth, LabelPropagation

Post = Literal["none", "cs", "cs_lp"]

PROPAGATED_SHARE = 0.2


def post_process(logits_NC: Tensor, y_N: Tensor, labelled_mask_N: Tensor, edge_index: Tensor, post: Post = "none") -> Tensor:
    r"""Return class probabilities, ``[N, C]``; every row sums to 1.

    - ``none``: the softmax :math:`P` of the logits, exactly;
    - ``cs``: Correct and Smooth of :math:`P`: 50 layers with :math:`\alpha = 0.5` spread the errors made on the training nodes,
      scaled automatically, and 50 with :math:`\alpha = 0.8` smooth the corrected probabilities;
    - ``cs_lp``: :math:`0.8 \cdot \mathrm{CS}(P) + 0.2 \cdot \mathrm{LP}`, with label propagation over 50 layers and
      :math:`\alpha = 0.9`.

    The propagation matrix :math:`D^{-1/2} A D^{-1/2}` is not stochastic, so ``cs`` and ``cs_lp`` divide each row by its sum at the
    end, which leaves the predicted class as it is.

    Args:
        logits_NC: the model's output.
        y_N: labels; only those of labelled nodes are read.
        labelled_mask_N: the training nodes, and no other.
        edge_index: edges, ``[2, E]``, used as they are.
        post: which of the three.

    Raises:
        ValueError: if ``post`` is unknown, or labels are needed and no node is labelled.

    Source: Huang et al. 2020 (arXiv 2010.13993); the constants are those of the official program of GESC (arXiv 2511.16062).
    """
    softmax_NC = torch.softmax(logits_NC, dim=-1)
    if post == "none":
        return softmax_NC
    if post not in ("cs", "cs_lp"):
        raise ValueError(f"post={post!r} is unknown: use 'none', 'cs' or 'cs_lp'")
    if not labelled_mask_N.any():
        raise ValueError(f"post={post!r} needs labelled nodes, but labelled_mask is empty")
    labels_NC = _one_hot(y_N, labelled_mask_N, softmax_NC)
    method = CorrectAndSmooth(50, 0.5, 50, 0.8, autoscale=True)
    labels_and_graph = (labels_NC[labelled_mask_N], labelled_mask_N, edge_index)
    corrected_NC = method.correct(softmax_NC, *labels_and_graph)
    corrected_NC = torch.where(corrected_NC.isfinite(), corrected_NC, softmax_NC)  # autoscale is 0/0 where no error reaches a node
    result_NC = method.smooth(corrected_NC, *labels_and_graph)
    if post == "cs_lp":
        propagated_NC = LabelPropagation(50, 0.9)(labels_NC, edge_index, labelled_mask_N)
        result_NC = (1 - PROPAGATED_SHARE) * result_NC + PROPAGATED_SHARE * propagated_NC
    total_N1 = result_NC.sum(dim=-1, keepdim=True)
    return torch.where(total_N1 > 0, result_NC / total_N1, softmax_NC)


def _one_hot(y_N: Tensor, labelled_mask_N: Tensor, like_NC: Tensor) -> Tensor:
    """Return the labels as rows of 0 and 1, rows of 0 where there is none."""
    known_N = torch.where(labelled_mask_N, y_N, 0)
    return torch.zeros_like(like_NC).scatter_(1, known_N[:, None], labelled_mask_N[:, None].to(like_NC.dtype))

"""Stop torch from looking for GPUs, again and again, on a machine that has none."""

import os


def settle_cuda_check() -> None:
    """Answer ``torch.cuda.is_available()`` without asking the driver where there is no GPU; call it after Lightning's import.

    Lightning lets torch ask NVIDIA's library instead of CUDA, so that processes may be forked afterwards. Every step of an
    optimiser asks; where that library is missing, each question searches the disk for it, which costs more than the step of a small
    network.
    """
    import torch

    if not torch.cuda.is_available():
        os.environ["PYTORCH_NVML_BASED_CUDA_CHECK"] = "0"

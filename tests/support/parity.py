"""Two processes with half of every batch each must do what one process does with whole batches."""

import json
from collections.abc import Sequence
from pathlib import Path

import pytest
import torch
from processes import launch


def trained(cwd: Path, words: Sequence[object], ranks: int) -> tuple[dict[str, torch.Tensor], dict[str, float | None]]:
    """Train and test; return the final parameters and the metrics."""
    done = launch([*words, f"--trainer.devices={ranks}", "--trainer.accelerator=cpu", "--run.name=parity/run"], cwd, ranks)
    assert [p.status for p in done] == [0] * ranks, done
    folder = cwd / "runs" / "parity" / "run" / "0"
    checkpoint = torch.load(folder / "checkpoints" / "last.ckpt", weights_only=True)
    parameters = checkpoint.get("current_model_state", checkpoint["state_dict"])
    return parameters, json.loads((folder / "summary.json").read_text())["metrics"]


def assert_parity(tmp_path: Path, words: Sequence[object], tolerance: float = 1e-5) -> None:
    """Train ``words`` on one and on two processes and compare.

    Args:
        tmp_path: an empty folder.
        words: command line of a short run without randomness in the model that depends on the rank.
        tolerance: largest difference of a parameter, and relative difference of a metric: sums of floats in another order.
    """
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
    one, metrics_of_one = trained(tmp_path / "one", words, 1)
    two, metrics_of_two = trained(tmp_path / "two", words, 2)
    assert one.keys() == two.keys()
    worst = {name: float((one[name] - two[name]).abs().max()) for name in one if one[name].is_floating_point()}
    assert max(worst.values()) < tolerance, worst
    assert metrics_of_one.keys() == metrics_of_two.keys()
    for name, value in metrics_of_one.items():
        assert metrics_of_two[name] == (value if value is None else pytest.approx(value, rel=tolerance, abs=tolerance)), (
            name,
            value,
            metrics_of_two[name],
        )

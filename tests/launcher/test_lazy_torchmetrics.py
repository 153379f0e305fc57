"""A start imports nothing heavy that it has no use for, and torchmetrics is whole nevertheless."""

import subprocess
import sys
from pathlib import Path

PROJECT = Path(__file__).parents[2]
START = """
import sys
from launcher.main import main

assert main(["fit", "--config", "configs/sheaf_admm/sudoku.yaml", "--trainer.max_steps", "0", "--run.root", sys.argv[1]]) == 0
heavy = {"torchvision", "transformers", "scipy", "torchmetrics.image", "torchmetrics.text"} & sys.modules.keys()
assert not heavy, heavy
"""
USE = """
import torch, torchmetrics

image = torch.rand(1, 1, 16, 16)
assert torchmetrics.functional.image.structural_similarity_index_measure(image, image) == 1
assert torchmetrics.text.BLEUScore().n_gram == 4
for package in (torchmetrics, torchmetrics.functional):
    assert not hasattr(package, "no_such_metric")
    whole = {"__name__": package.__name__, "__path__": package.__path__, "__file__": package.__file__}
    with open(package.__file__) as file:
        exec(file.read(), whole)
    names = {name for name in whole if not name.startswith("__")}
    assert names > set(whole["__all__"]) and names <= set(dir(package))
    for name in names:
        assert getattr(package, name) == whole[name], name
"""


def test_a_start_leaves_heavy_packages_alone(tmp_path: Path):
    done = subprocess.run([sys.executable, "-c", START + USE, str(tmp_path)], cwd=PROJECT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr

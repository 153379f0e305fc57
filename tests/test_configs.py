"""Every experiment that ``train.py --list`` shows runs from end to end under the smoke overlay."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from processes import launch

from datamodules.images import FILES
from datamodules.roots import data_folders, find_data
from launcher.listing import description, experiments

PROJECT = Path(__file__).parents[1]
SMOKE = PROJECT / "configs" / "overlays" / "smoke.yaml"
CONFIGS = {f"{path.parent.name}/{path.stem}": path for path in experiments()}


def need_files(name: str) -> None:
    """Skip an experiment whose data are on no disk here; the launcher's data folders are searched."""
    data = yaml.safe_load(CONFIGS[name].read_text())["data"]
    needed = None
    default = {"datamodules.MNISTPatchDataModule": "mnist", "datamodules.LabelledImageDataModule": "digits8"}
    if data["class_path"] in default:
        files = FILES.get(data["init_args"].get("variant", default[data["class_path"]]))
        needed = files and files.archive
    if data["class_path"] == "datamodules.HeterophilousGraphDataModule":
        needed = "graphs/texas/geom_gcn_edges.txt"  # of the set that the smoke overlay takes
    if yaml.safe_load(CONFIGS[name].read_text())["model"]["class_path"] == "lightning_modules.MoEFineTuneModule":
        pytest.importorskip("transformers")
    if needed and not find_data(needed):
        pytest.skip(f"{needed} is in none of {', '.join(map(str, data_folders()))}")


@pytest.mark.parametrize("name", CONFIGS)
def test_smoke(tmp_path: Path, name: str):
    need_files(name)
    done = launch(["--config", CONFIGS[name], "--config", SMOKE, "--trainer.accelerator=cpu"], tmp_path)[0]
    assert done.status == 0, done.output
    summary = json.loads((tmp_path / "runs" / name / "0" / "summary.json").read_text())
    assert any(key.startswith("test/") for key in summary["metrics"])


@pytest.mark.parametrize(
    "name", ["sheaf_admm/sudoku", "sheaf_admm/sudoku_mpnn_slot", "sheaf_admm/sudoku_lora_paper", "sheaf_admm/maze"]
)
def test_smoke_in_mixed_precision(tmp_path: Path, name: str):
    bf16 = PROJECT / "configs" / "overlays" / "bf16.yaml"
    words = ["--config", CONFIGS[name], "--config", SMOKE, "--config", bf16, "--trainer.accelerator=cpu"]
    done = launch(words, tmp_path)[0]
    assert done.status == 0, done.output


@pytest.mark.parametrize("name", CONFIGS)
def test_the_first_line_says_what_it_shows_and_how_long(name: str):
    text = description(CONFIGS[name])
    assert CONFIGS[name].read_text().startswith("# ")
    assert any(word in text for word in ("second", "minute", "hour", "GPU")), text


def test_the_list_is_complete_and_imports_no_torch():
    code = "import sys; from launcher.main import main; main(['--list']); sys.exit('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], cwd=PROJECT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert [line.split()[0] for line in done.stdout.splitlines()] == [f"configs/{name}.yaml" for name in CONFIGS]

"""docs/add_a_method.md, followed to the letter, gives a method that trains."""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

PROJECT = Path(__file__).parents[1]
PAGE = (PROJECT / "docs" / "add_a_method.md").read_text()


def test_the_page_builds_a_method_that_trains(tmp_path: Path):
    house = tmp_path / "house"
    for part in ("train.py", "launcher", "callbacks", "datamodules", "lightning_modules", "configs"):
        source = PROJECT / part
        copy = shutil.copytree if source.is_dir() else shutil.copy
        house.mkdir(exist_ok=True)
        copy(source, house / part)
    files = re.findall(r"```(?:python|yaml)\n# (\S+)\n(.*?)```", PAGE, flags=re.DOTALL)
    assert len(files) == 4
    for name, content in files:
        (house / name).parent.mkdir(exist_ok=True)
        (house / name).write_text(content)
    entries = re.findall(r"table in `(\S+)`: `(.+)`\.", PAGE)
    assert len(entries) == 2
    for name, entry in entries:
        table = (house / name).read_text()
        (house / name).write_text(table.replace("submod_attrs={\n", "submod_attrs={\n        " + entry + "\n"))
    command = re.search(r"python (train\.py --config configs/ridge/\S+)", PAGE)
    assert command
    done = subprocess.run([sys.executable, *command[1].split()], cwd=house, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    summary = json.loads((house / "runs/ridge/plane/0/summary.json").read_text())
    assert summary["metrics"]["test/error"] < 0.01

"""What finished runs left behind."""

import json
from pathlib import Path


def find_checkpoint(path: Path, option: str, configs: str) -> Path:
    """Return the best checkpoint of the newest finished run.

    Args:
        path: ``runs/sac/pendulum``, all runs of an experiment; ``runs/sac/pendulum/3``, one of them; or a file.
        option: what the path was given for, for the message.
        configs: folder of the configs that train such a run, for the message.

    Raises:
        FileNotFoundError: if no finished run left a checkpoint there.
    """
    if path.is_file():
        return path
    runs = sorted((run for run in path.glob("*") if run.name.isdigit()), key=lambda run: int(run.name), reverse=True)
    for run in [path, *runs]:
        summary = run / "summary.json"
        if not summary.exists():
            continue
        content = json.loads(summary.read_text())
        best = content.get("best_checkpoint")
        if content["status"] == "finished" and best and Path(best).is_file():
            return Path(best)
    run = path.parent.parent if path.suffix else path
    task = (run.parent if run.name.isdigit() else run).name or "<task>"
    raise FileNotFoundError(
        f"{option}: {path} is no checkpoint, and no finished run with one; train it with "
        f"`python train.py --config {configs}/{task}.yaml`"
    )

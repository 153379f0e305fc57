"""A stand-in for train.py: obeys its contract on run folders and resume, and trains nothing."""

import json
import sys
from pathlib import Path


def main(words: list[str]) -> int:
    resume = "--resume" in words
    words = [word for word in words if word != "--resume"]
    options = dict(zip(words[::2], words[1::2], strict=True))
    parent = Path(options["--run.root"]) / options["--run.name"]
    parent.mkdir(parents=True, exist_ok=True)
    with open(Path(options["--run.root"]) / "calls.txt", "a") as calls:
        calls.write(f"{options['--run.name']} {'resume' if resume else 'start'}\n")
    lr, steps, seed = float(options.get("--lr", 0)), int(options.get("--trainer.max_steps", 5)), int(options["--seed_everything"])
    numbers = [int(path.name) for path in parent.iterdir() if path.name.isdigit()]
    folder = parent / str(max(numbers) if resume else len(numbers))
    (folder / "checkpoints").mkdir(parents=True, exist_ok=True)
    if options.get("--behaviour") == "fail":
        print("first line\nlearning rate must be positive", file=sys.stderr)
        return 2
    if options.get("--behaviour") == "interrupt" and not resume:
        (folder / "checkpoints" / "last.ckpt").touch()
        return 130
    metrics = {"test/solved": lr * seed, "test/solved_at_16": lr}
    if "--teacher" in options:
        metrics["test/teacher_seed"] = json.loads((Path(options["--teacher"]) / "summary.json").read_text())["seed"]
    validation = 1 - abs(lr - float(options["--best_lr"])) * 100
    rows = ["step,val/solved", f"0,{validation - 0.5}", f"1,{validation}", "2,"]
    (folder / "metrics.csv").write_text("\n".join(rows))
    summary = {
        "status": "finished",
        "seed": seed,
        "metrics": metrics,
        "steps": steps,
        "train_seconds": 1.5,
        "parameters": 7,
    }
    (folder / "summary.json").write_text(json.dumps(summary))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

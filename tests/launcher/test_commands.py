"""What a user types, and what comes of it. All commands run in forked processes that share one import."""

import csv
import json
import signal
from pathlib import Path

import pytest
import torch
import yaml
from processes import Finished, launch
from toy import ToyModule

TOY = Path(__file__).parents[1] / "support" / "toy.yaml"
KILL = '--trainer.callbacks+={"class_path": "toy.KillAt"}'
OVERLAYS = Path(__file__).parents[2] / "configs" / "overlays"


def run(cwd: Path, *words: object, ranks: int = 1, env: dict[str, str] | None = None) -> Finished:
    return launch(words, cwd, ranks, env)[0]


def toy(cwd: Path, *words: object, status: int = 0, **kwargs: object) -> str:
    """Launch the toy experiment and return what it printed."""
    done = run(cwd, "--config", TOY, *words, **kwargs)  # type: ignore[arg-type]
    assert done.status == status, done.output
    return done.output


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which the toy was trained and tested once."""
    cwd = tmp_path_factory.mktemp("trained")
    (cwd / "output").write_text(toy(cwd))
    return cwd


def summary(cwd: Path, number: int = 0, name: str = "support/toy") -> dict:
    return json.loads((cwd / "runs" / name / str(number) / "summary.json").read_text())


def test_fit_then_test_leaves_a_full_folder(trained: Path):
    folder = trained / "runs" / "support" / "toy" / "0"
    assert {"config.yaml", "metrics.csv", "summary.json", "run.json", "checkpoints"} <= {p.name for p in folder.iterdir()}
    assert list(folder.glob("events.out.tfevents.*"))
    said = summary(trained)
    assert said["status"] == "finished"
    assert said["steps"] == 24
    assert said["seed"] == 42
    assert said["parameters"] == 3 * 8 + 8 + 8 + 1
    assert {"val/loss", "test/loss"} <= said["metrics"].keys()
    output = (trained / "output").read_text()
    assert f"{said['metrics']['test/loss']:.4g}" in output
    assert "runs/support/toy/0" in output
    assert "tensorboard --logdir runs" in output


def test_the_best_checkpoint_is_tested(trained: Path):
    best = summary(trained)["best_checkpoint"]
    with (trained / "runs/support/toy/0/metrics.csv").open() as file:
        losses = [float(row["val/loss"]) for row in csv.DictReader(file) if row["val/loss"]]
    checkpoint = torch.load(best, weights_only=True)
    score = next(v for k, v in checkpoint["callbacks"].items() if k.startswith("ModelCheckpoint"))["best_model_score"]
    assert float(score) == pytest.approx(min(losses))
    assert ToyModule.load_from_checkpoint(best).net[0].in_features == 3  # what the data dictated is in the checkpoint
    done = run(trained, "test", "--config", TOY, "--run.name", "again/test", "--ckpt_path", best)
    assert done.status == 0, done.output
    assert summary(trained, name="again/test")["metrics"]["test/loss"] == summary(trained)["metrics"]["test/loss"]


@pytest.mark.parametrize("subcommand", ["fit", "validate", "test", "predict"])
def test_a_saved_config_serves_every_subcommand(trained: Path, subcommand: str):
    saved = trained / "runs" / "support" / "toy" / "0" / "config.yaml"
    done = run(trained, subcommand, "--config", saved, "--run.name", f"saved/{subcommand}")
    assert done.status == 0, done.output
    if subcommand == "predict":
        predictions = torch.load(trained / "runs" / "saved" / "predict" / "0" / "predictions.pt", weights_only=True)
        assert sum(map(len, predictions)) == 21


def test_testing_without_a_checkpoint_says_so(trained: Path):
    done = run(trained, "test", "--config", TOY, "--run.name", "untrained/test")
    assert "test: no --ckpt_path was given" in done.output
    done = run(trained, "test", "--config", TOY, "--run.name", "again/best", "--ckpt_path", summary(trained)["best_checkpoint"])
    assert "no --ckpt_path" not in done.output


def test_runs_are_numbered(trained: Path):
    toy(trained, "--trainer.max_epochs=1")
    assert summary(trained, 1)["epochs"] == 1
    assert yaml.safe_load((trained / "runs/support/toy/1/config.yaml").read_text())["run"]["name"] == "support/toy"


def test_a_method_without_training_is_tested_at_once(tmp_path: Path):
    output = toy(tmp_path, "--model=toy.WithoutTraining")
    assert "test/mean" in summary(tmp_path)["metrics"]
    assert summary(tmp_path)["steps"] == 0
    assert "warning" not in output.lower()


def test_trainer_defaults_hold_unless_the_user_writes(tmp_path: Path):
    config = yaml.safe_load(TOY.read_text())
    del config["trainer"]["max_epochs"]
    path = tmp_path / "own" / "line.yaml"
    path.parent.mkdir()
    path.write_text(yaml.safe_dump(config))
    words = ["--config", path, "--model.init_args.wanted_epochs=2"]
    assert run(tmp_path, *words).status == 0
    assert summary(tmp_path, name="own/line")["epochs"] == 2
    assert run(tmp_path, *words, "--trainer.max_epochs=1", "--data.init_args.max_epochs=3").status == 0
    assert summary(tmp_path, 1, "own/line")["epochs"] == 1
    contradiction = run(tmp_path, *words, "--data.init_args.max_epochs=3")
    assert contradiction.status == 2
    assert "trainer.max_epochs: ToyModule needs 2 and ToyDataModule needs 3" in contradiction.output


def test_without_validation_the_last_weights_are_tested(tmp_path: Path):
    output = toy(tmp_path, "--trainer.limit_val_batches=0", "--trainer.max_epochs=1")
    assert "no validation chose a best checkpoint" in output
    assert "test/loss" in summary(tmp_path)["metrics"]


def test_the_terminal_shows_only_what_matters(trained: Path):
    output = (trained / "output").read_text()
    for noise in ("Tip", "TPU", "weights_only", "many workers", "LeafSpec", "deprecated"):
        assert noise not in output


@pytest.mark.parametrize("overlay", ["smoke", "deterministic", "profile", "bf16"])
def test_overlays(tmp_path: Path, overlay: str):
    toy(tmp_path, "--config", OVERLAYS / f"{overlay}.yaml", "--trainer.max_epochs=1")
    if overlay == "smoke":
        assert summary(tmp_path)["steps"] == 3
    if overlay == "profile":
        assert list((tmp_path / "runs/support/toy/0").glob("*profile*"))


def test_ddp_overlay_takes_its_size_from_torchrun(tmp_path: Path):
    done = launch(["--config", TOY, "--config", OVERLAYS / "ddp.yaml"], tmp_path, ranks=2)
    assert [p.status for p in done] == [0, 0], done
    assert [p.name for p in (tmp_path / "runs/support/toy").iterdir()] == ["0"]
    assert summary(tmp_path)["steps"] == 24


BAD_FILES = {"trainer.yaml": "trainer: {max_epoch: 3}", "modle.yaml": "modle: {class_path: toy.ToyModule}"}


def test_lightnings_debugging_flags(tmp_path: Path):
    toy(tmp_path, "--trainer.fast_dev_run=2")
    toy(tmp_path, "--trainer.overfit_batches=2")
    assert summary(tmp_path, 1)["steps"] == 3 * 2


MISTAKES = {
    "unknown key": (["--trainer.max_epoch=3"], "unknown key 'trainer.max_epoch'; did you mean 'max_epochs'?"),
    "unknown top key": (["--modle=3"], "unknown key 'modle'; did you mean 'model'?"),
    "wrong type": (["--trainer.max_epochs=many"], "trainer.max_epochs: expected int or null, got 'many'"),
    "wrong parameter": (["--model.init_args.lrr=3"], "toy.ToyModule has no parameter 'lrr'; did you mean 'lr'?"),
    "wrong parameter type": (["--model.init_args.lr=fast"], "model.init_args.lr: expected float, got 'fast'"),
    "unknown class": (["--model=toy.ToyModul"], "there is no class toy.ToyModul; did you mean 'ToyModule'?"),
    "unknown module": (["--model=nowhere.Model"], "nowhere is not installed: pip install nowhere"),
    "missing extra": (["--model=missing_extra.NeedsSubmitit"], "pip install 'leyden[cluster]'"),
    "no such class": (["--data=toy.ToyModule"], "data: 'toy.ToyModule' is no LightningDataModule"),
    "unknown key in a file": (["--config=trainer.yaml"], "unknown key 'trainer.max_epoch'; did you mean 'max_epochs'?"),
    "unknown top key in a file": (["--config=modle.yaml"], "unknown key 'modle.class_path'; did you mean 'model'?"),
    "unknown callback": (["--trainer.callbacks=callbacks.EMAWeight"], "no class callbacks.EMAWeight; did you mean 'EMAWeights'?"),
    "wrong choice": (["--trainer.callbacks=toy.Choosy", "--trainer.callbacks.mode=c"], "one of 'a', 'b', got 'c'"),
    "refused by a constructor": (["--resume.every_n_steps=0"], "ExactResume needs positive numbers, got every_n_steps=0"),
    "refused by the data": (["--data.init_args.max_epochs=-7"], "max_epochs=-7 is negative"),
    "missing file": (["--config=nowhere.yaml"], "there is no file nowhere.yaml"),
    "bad data": (["--data.init_args.size=-1"], "size=-1 is negative: use a positive number of samples"),
    "bad batch": (["--data.init_args.batch_size=100"], "use a smaller batch_size"),
    "nothing to resume": (["--resume"], "--resume: no unfinished run under runs/support/toy"),
    "no checkpoint": (["--ckpt_path=nowhere.ckpt"], "nowhere.ckpt"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_one_line_and_leaves_nothing(tmp_path: Path, mistake: str):
    words, message = MISTAKES[mistake]
    for name, content in BAD_FILES.items():
        (tmp_path / name).write_text(content)
    errors = [line for line in toy(tmp_path, *words, status=2).splitlines() if line.startswith("error: ")]
    assert len(errors) == 1
    assert message in errors[0]
    assert {path.name for path in tmp_path.iterdir()} == BAD_FILES.keys()


@pytest.mark.parametrize("word", ["--print_config", "--model.help=toy.ToyModule", "--help"])
def test_asking_leaves_nothing(tmp_path: Path, word: str):
    assert "lr" in toy(tmp_path, word) or word == "--help"
    assert list(tmp_path.iterdir()) == []


def test_checkpoints_that_do_not_fit(trained: Path, tmp_path: Path):
    best = summary(trained)["best_checkpoint"]
    output = toy(tmp_path, "--model=toy.WithoutTraining", "--ckpt_path", best, "--trainer.max_epochs=1", status=0)
    other = toy(tmp_path, "--model.init_args.in_features=4", "--run.name=other/model", "--ckpt_path", best, status=2)
    assert f"{best} belongs to another model" in other
    torn = tmp_path / "torn.ckpt"
    torn.write_bytes(Path(best).read_bytes()[:2000])
    assert f"{torn} is no readable checkpoint" in toy(tmp_path, "--ckpt_path", torn, status=2)
    assert "error" not in output


def test_a_read_only_folder(tmp_path: Path):
    (tmp_path / "runs").write_text("a file where the folder should be")
    assert "run.root: cannot write a run folder" in toy(tmp_path, status=2)


def test_a_torn_checkpoint_is_passed_over(tmp_path: Path):
    killed = run(tmp_path, "--config", TOY, KILL, env={"KILL_AT": "13 batch_start"})
    assert killed.status == -signal.SIGKILL
    last = tmp_path / "runs/support/toy/0/checkpoints/last.ckpt"
    last.write_bytes(last.read_bytes()[:1000])
    output = toy(tmp_path, "--resume")
    assert "last.ckpt is torn and is passed over" in output
    assert summary(tmp_path)["steps"] == 24


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
@pytest.mark.parametrize("ranks", [1, 2])
def test_signals_end_cleanly(trained: Path, tmp_path: Path, number: int, status: int, ranks: int):
    send = f'[{{"class_path": "toy.SignalAt", "init_args": {{"step": 10, "number": {int(number)}}}}}]'
    words = ["--config", TOY, f"--trainer.devices={ranks}", "--trainer.max_epochs=8"]
    done = launch([*words, f"--trainer.callbacks={send}"], tmp_path, ranks)
    assert [p.status for p in done] == [status] * ranks, done
    assert "continue with: python train.py" in done[0].output
    resumed = launch([*words, "--resume", "--trainer.callbacks=null"], tmp_path, ranks)
    assert [p.status for p in resumed] == [0] * ranks, resumed
    assert summary(tmp_path)["steps"] == 64

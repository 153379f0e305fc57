import io
import re

import pytest
from lightning.pytorch import Trainer
from lightning.pytorch.callbacks import ModelCheckpoint
from lightning.pytorch.demos.boring_classes import BoringModel

from callbacks.progress import RunProgressBar


class Terminal(io.StringIO):
    def isatty(self):
        return True


class LoggedModel(BoringModel):
    reads = 0

    def training_step(self, batch, batch_idx):
        output = super().training_step(batch, batch_idx)
        self.log("train/loss", output["loss"])
        return output

    def validation_step(self, batch, batch_idx):
        self.log("val/solved", 0.25)


def run(monkeypatch, folder, stream, bar, stage="fit", module=None, **options):
    monkeypatch.setattr("sys.stderr", stream)
    options = {"max_epochs": 2, **options}
    trainer = Trainer(
        default_root_dir=folder,
        limit_train_batches=4,
        limit_val_batches=2,
        limit_test_batches=3,
        callbacks=[bar, ModelCheckpoint(folder, monitor="val/solved", save_top_k=0)],
        logger=False,
        enable_model_summary=False,
        accelerator="cpu",
        **options,
    )
    getattr(trainer, stage)(module or LoggedModel())
    return stream.getvalue()


def test_terminal_shows_one_bar_over_the_run(monkeypatch, tmp_path):
    text = run(monkeypatch, tmp_path, Terminal(), RunProgressBar(refresh_seconds=1e-9))
    shown = [int(n) for n in re.findall(r"(\d+)/8", text)]
    assert (shown[0], shown[-1]) == (0, 8)
    assert shown == sorted(shown), "all epochs are on one bar"
    assert text.count("\n") == 1, "validation opens no line of its own"
    assert "epoch 1, validation batch 2" in text
    final = text.split("\r")[-1]
    assert "train/loss=" in final
    assert "val/solved=0.25" in final
    assert "100%" in final
    assert re.search(r"step/s|s/step", final)


class OwnSteps(LoggedModel):
    logger_steps = 800

    @property
    def logger_step(self):
        return 100 * self.trainer.global_step


def test_a_module_may_count_itself(monkeypatch, tmp_path):
    text = run(monkeypatch, tmp_path, Terminal(), RunProgressBar(refresh_seconds=1e-9), module=OwnSteps())
    assert [int(n) for n in re.findall(r"(\d+)/800", text)][-1] == 800


def test_accumulation_and_max_steps_set_the_total(monkeypatch, tmp_path):
    bar = RunProgressBar(refresh_seconds=1e-9)
    assert "4/4" in run(monkeypatch, tmp_path, Terminal(), bar, accumulate_grad_batches=2)
    bar = RunProgressBar(refresh_seconds=1e-9)
    assert "3/3" in run(monkeypatch, tmp_path, Terminal(), bar, max_steps=3)


def test_file_gets_plain_lines_at_their_time(monkeypatch, tmp_path):
    clock = iter(range(0, 100_000, 7))
    monkeypatch.setattr("callbacks.progress.time.monotonic", lambda: float(next(clock)))
    text = run(monkeypatch, tmp_path, io.StringIO(), RunProgressBar(plain_seconds=30))
    lines = text.splitlines()
    assert "\r" not in text
    assert "\x1b" not in text
    assert 2 <= len(lines) <= 4, "eight steps of seven seconds are two or three lines, and one at the end"
    assert re.fullmatch(
        r"train: 8/8 steps, \d\d:\d\d elapsed, 00:00 left, .*(step/s|s/step), train/loss=\S+, val/solved=0\.25", lines[-1]
    )


def test_metrics_are_read_only_when_shown(monkeypatch, tmp_path):
    bar = RunProgressBar(plain_seconds=1000)
    reads = []
    monkeypatch.setattr(bar, "_metrics", lambda trainer: reads.append(1) or {})
    run(monkeypatch, tmp_path, io.StringIO(), bar)
    assert len(reads) == 1, "only the closing line looks at them"


def test_test_bar_goes_away(monkeypatch, tmp_path):
    text = run(monkeypatch, tmp_path, Terminal(), RunProgressBar(refresh_seconds=1e-9), stage="test")
    assert "3/3" in text
    assert "\n" not in text


def test_test_is_silent_without_a_terminal(monkeypatch, tmp_path):
    assert run(monkeypatch, tmp_path, io.StringIO(), RunProgressBar(), stage="test") == ""


def test_disabled_bar_is_silent(monkeypatch, tmp_path):
    bar = RunProgressBar(refresh_seconds=1e-9)
    bar.disable()
    assert run(monkeypatch, tmp_path, Terminal(), bar) == ""


def test_bad_time_is_refused():
    with pytest.raises(ValueError, match="positive times"):
        RunProgressBar(refresh_seconds=0)

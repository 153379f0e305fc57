import json
import time
from pathlib import Path

import pytest
import yaml
from lightning.pytorch import Callback, Trainer
from lightning.pytorch.callbacks import ModelCheckpoint
from lightning.pytorch.demos.boring_classes import BoringModel
from matplotlib.figure import Figure
from wandb.proto.wandb_internal_pb2 import Record

from callbacks.figures import publish_figure
from callbacks.wandb_logger import RunWandbLogger

REPOSITORY = Path(__file__).parents[2]
KEY_VARIABLES = ("WANDB_MODE", "WANDB_API_KEY", "WANDB_IDENTITY_TOKEN_FILE", "WANDB_RUN_ID", "WANDB_BASE_URL")
SOLVED = [0.5, 0.75, 0.25]


class SolvingModel(BoringModel):
    def __init__(self, lr: float = 0.1):
        super().__init__()
        self.save_hyperparameters()

    def validation_step(self, batch, batch_idx):
        self.log_dict({"val/solved": SOLVED[self.current_epoch], "val/loss": 1.0 + self.current_epoch})

    def test_step(self, batch, batch_idx):
        self.log("test/solved", 0.625)


class Plot(Callback):
    def on_test_end(self, trainer, pl_module):
        figure = Figure(figsize=(1, 1))
        figure.subplots()
        publish_figure(trainer, figure, "answers")


def read_records(path: Path) -> list[Record]:
    """Read W&B's transaction log: a 7-byte header, then 32 KiB blocks of (crc 4, length 2, kind 1, data) as in LevelDB."""
    data, position, records, parts = path.read_bytes(), 7, [], b""
    while position + 7 <= len(data):
        rest = 32768 - position % 32768
        if rest < 7:
            position += rest
            continue
        length, kind = int.from_bytes(data[position + 4 : position + 6], "little"), data[position + 6]
        position += 7 + length
        if position > len(data):
            break
        parts += data[position - length : position]
        if kind in (1, 4):
            records.append(Record.FromString(parts))
            parts = b""
    return records


@pytest.fixture(scope="module")
def no_key(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        for name in KEY_VARIABLES:
            patch.delenv(name, raising=False)
        patch.setenv("NETRC", str(tmp_path_factory.mktemp("home") / "netrc"))
        yield patch


@pytest.fixture(scope="module")
def run(tmp_path_factory, no_key):
    folder = tmp_path_factory.mktemp("runs") / "sheaf_admm" / "sudoku" / "3"
    folder.mkdir(parents=True)
    (folder / "config.yaml").write_text(yaml.safe_dump({"model": {"init_args": {"lr": 0.1}}, "seed_everything": 42}))
    logger = RunWandbLogger(str(folder), "sheaf_admm/sudoku", "abcd1234", tags=["mine"])
    trainer = Trainer(
        default_root_dir=folder,
        max_epochs=3,
        limit_train_batches=2,
        limit_val_batches=1,
        limit_test_batches=1,
        log_every_n_steps=1,
        callbacks=[ModelCheckpoint(folder / "checkpoints", monitor="val/solved", mode="max"), Plot()],
        logger=logger,
        num_sanity_val_steps=0,
        enable_progress_bar=False,
        enable_model_summary=False,
        accelerator="cpu",
    )
    model = SolvingModel()
    trainer.fit(model)
    trainer.test(model, verbose=False)
    logger.finish()
    (offline,) = (folder / "wandb").glob("offline-run-*")
    (log,) = offline.glob("*.wandb")
    deadline = time.monotonic() + 30
    while not any(record.HasField("exit") for record in read_records(log)):  # W&B's own process writes the file
        assert time.monotonic() < deadline, "W&B has not closed its log"
        time.sleep(0.05)
    return offline, read_records(log)


def values(items) -> dict:
    return {item.key or "/".join(item.nested_key): json.loads(item.value_json) for item in items}


def test_run_is_named_and_tagged(run):
    record = next(r.run for r in run[1] if r.HasField("run"))
    assert record.run_id == "abcd1234"
    assert record.project == "leyden"
    assert record.display_name == "sheaf_admm/sudoku/3"
    assert set(record.tags) == {"sheaf_admm", "sudoku", "mine"}
    assert record.run_group == "sheaf_admm/sudoku"


def test_config_is_complete(run):
    config = {}
    for record in run[1]:
        config |= values(record.run.config.update if record.HasField("run") else record.config.update)
    assert config["model"] == {"init_args": {"lr": 0.1}}
    assert config["seed_everything"] == 42
    assert config["lr"] == 0.1


def test_x_axis_is_defined(run):
    metrics = [r.metric for r in run[1] if r.HasField("metric")]
    assert any(m.glob_name == "*" and m.step_metric == "trainer/global_step" for m in metrics)


def test_metrics_and_image(run):
    rows = [values(r.history.item) for r in run[1] if r.HasField("history")]
    solved = [(row["trainer/global_step"], row["val/solved"]) for row in rows if "val/solved" in row]
    assert solved == [(1, 0.5), (3, 0.75), (5, 0.25)]
    assert any(row.get("test/solved") == 0.625 for row in rows)
    ((name,),) = [row["figures/answers/filenames"] for row in rows if "figures/answers/filenames" in row]
    assert (run[0] / "files" / name).is_file()


def test_summary_holds_last_and_best(run):
    summary = {}
    for record in run[1]:
        summary |= values(record.history.item) if record.HasField("history") else values(record.summary.update)
    assert summary["val/solved"] == 0.25
    assert summary["test/solved"] == 0.625
    best = {name: value for name, value in summary.items() if name.startswith("best")}
    assert best == {"best/val/solved": 0.75, "best/val/loss": 2.0, "best/step": 3}


def test_resumed_run_has_the_same_id(run, no_key):
    again = RunWandbLogger(str(run[0].parents[1]), "sheaf_admm/sudoku", "abcd1234")
    assert again.version == "abcd1234"


@pytest.mark.parametrize(
    ("variables", "mode"),
    [
        ({}, "offline"),
        ({"WANDB_API_KEY": "0" * 40}, None),
        ({"WANDB_API_KEY": "0" * 40, "WANDB_MODE": "offline"}, "offline"),
        ({"WANDB_MODE": "online"}, None),
        ({"WANDB_MODE": "disabled"}, None),
        ({"WANDB_RUN_ID": "from_sweep"}, "offline"),
    ],
)
def test_offline_only_without_key(tmp_path, no_key, monkeypatch, variables, mode):
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    logger = RunWandbLogger(str(tmp_path), "method/task", "abcd1234")
    assert logger._wandb_init["mode"] == mode
    assert logger.version == (None if "WANDB_RUN_ID" in variables else "abcd1234"), "a sweep chooses the id"


def test_netrc_entry_is_a_key(tmp_path, no_key, monkeypatch):
    (tmp_path / "netrc").write_text(f"machine api.wandb.ai login user password {'0' * 40}\n")
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    assert RunWandbLogger(str(tmp_path))._wandb_init["mode"] is None


def test_overlay_adds_the_logger_to_the_others():
    from lightning.pytorch.cli import LightningArgumentParser

    parser = LightningArgumentParser()
    parser.add_argument("--config", action="config")
    parser.add_lightning_class_args(Trainer, "trainer")
    defaults = yaml.safe_load((REPOSITORY / "configs/defaults.yaml").read_text())["trainer"]["logger"]
    overlay = yaml.safe_load((REPOSITORY / "configs/overlays/wandb.yaml").read_text())
    config = parser.parse_args(["--config", yaml.safe_dump({"trainer": {"logger": defaults}}), "--config", yaml.safe_dump(overlay)])
    paths = [logger.class_path for logger in config.trainer.logger]
    assert paths == [*(entry["class_path"] for entry in defaults), "callbacks.RunWandbLogger"]


def test_sweep_file_sweeps_real_settings():
    from inspect import signature

    from lightning_modules.sheaf_admm.module import AgentModule, SheafADMMModule

    sweep = yaml.safe_load((REPOSITORY / "configs/sweeps/sheaf_admm_sudoku.yaml").read_text())
    known = {*signature(SheafADMMModule).parameters, *signature(AgentModule).parameters}
    swept = [name.removeprefix("model.init_args.") for name in sweep["parameters"] if name.startswith("model.")]
    assert swept
    assert set(swept) <= known
    assert all((REPOSITORY / word).is_file() for word in sweep["command"] if word.endswith(".yaml"))

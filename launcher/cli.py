"""LightningCLI with a run folder, exact resume, and settings that flow from the data to the model and the trainer."""

from pathlib import Path
from pkgutil import resolve_name
from typing import Any

from jsonargparse import Namespace
from lightning import LightningDataModule, Trainer
from lightning.pytorch.callbacks import ModelCheckpoint, Timer
from lightning.pytorch.cli import LightningArgumentParser, LightningCLI
from lightning.pytorch.utilities.rank_zero import rank_zero_info

from callbacks import ExactResume, RankConsistency, RunProgressBar
from launcher.checkpoint_io import AtomicCheckpointIO
from launcher.cluster import started_processes
from launcher.errors import UserError
from launcher.paths import DEFAULTS

STRATEGIES_WITH_OWN_CHECKPOINTS = ("fsdp", "deepspeed", "model_parallel")


class LeydenCLI(LightningCLI):
    """Build model, data and trainer from the command line; running them is the caller's work.

    Args:
        args: command line for LightningCLI.
        folder: the run folder.
        run_id: identity of the run for dashboards.
        run_name: ``method/task``.
        resume_step: steps that a continued run has logged already, None for a new run.
        written: trainer settings that the user wrote.
    """

    def __init__(
        self, args: list[str], folder: Path, run_id: str, run_name: str, resume_step: int | None, written: set[str]
    ) -> None:
        self.folder = folder
        self.written = written
        self.logger_arguments = {
            "save_dir": str(folder),
            "run_name": run_name,
            "run_id": f"{run_name.replace('/', '-')}-{folder.name}-{run_id}",
            "resume_step": resume_step,
        }
        super().__init__(
            run=False,
            args=args,
            save_config_callback=None,
            auto_configure_optimizers=False,
            parser_kwargs={"default_config_files": [str(DEFAULTS)], "exit_on_error": False, "allow_abbrev": False},
        )

    def add_arguments_to_parser(self, parser: LightningArgumentParser) -> None:
        parser.add_lightning_class_args(ModelCheckpoint, "checkpoint")
        parser.add_lightning_class_args(ExactResume, "resume")
        parser.add_lightning_class_args(RunProgressBar, "progress")
        parser.add_lightning_class_args(RankConsistency, "consistency")
        parser.add_argument("--run.root", type=str, default="runs", help="folder of all runs")
        parser.add_argument(
            "--run.smoke", type=bool, default=False, help="shrink data and model to what their classes call `smoke`"
        )
        parser.add_argument("--run.compile", type=bool, default=False, help="torch.compile the steps of the model")
        parser.add_argument("--run.name", type=str | None, default=None, help="method/task; default from the config's path")

    def before_instantiate_classes(self) -> None:
        for required in ("model", "data"):
            if not self.config.get(required):
                raise UserError(
                    f"{required}: nothing chosen; give an experiment with --config, `python train.py --list` shows them"
                )

    def instantiate_classes(self) -> None:
        """Instantiate the data first, let it fill the model, then let both fill the trainer."""
        if self.config.run.smoke:
            self._shrink()
        written, self.config = self.config, self.config.clone()
        self.datamodule = instantiate_data(self.parser, self.config)
        self._point_into_folder(self.config)
        vars(self).pop("config_dump", None)  # Lightning stores this dump in checkpoints: it must hold what was filled in
        self.config_init = self.parser.instantiate(Namespace({k: v for k, v in vars(self.config).items() if k != "data"}))
        self.model = self.config_init.model
        self.config = written
        self._apply_trainer_defaults()
        self.trainer = self.instantiate_trainer()

    def instantiate_trainer(self, **kwargs: Any) -> Trainer:
        settings = {**self.config_init.trainer, **kwargs}
        forced = [self.config_init[key] for key in self._forced_callbacks(settings)]
        if not any(name in str(settings["strategy"]) for name in STRATEGIES_WITH_OWN_CHECKPOINTS):
            settings["plugins"] = [*_as_list(settings["plugins"]), AtomicCheckpointIO()]
        settings["default_root_dir"] = str(self.folder)
        if settings["devices"] == "auto":
            settings |= started_processes()
        return self._instantiate_trainer(settings, [*forced, Timer()])

    def save_config(self, path: Path) -> None:
        """Write what was parsed, free of this run's own paths, so that it can be given as ``--config`` again."""
        temporary = path.with_name(f".{path.name}.part")
        self.parser.save(self.config, str(temporary), skip_unset=False, overwrite=True, multifile=False)
        temporary.replace(path)

    def _forced_callbacks(self, settings: dict[str, Any]) -> list[str]:
        wanted = ["consistency"]
        if settings["enable_checkpointing"] is not False and not settings["fast_dev_run"]:
            wanted += ["checkpoint", "resume"]
        if settings["enable_progress_bar"] is not False:
            wanted += ["progress"]
        return wanted

    def _point_into_folder(self, config: Namespace) -> None:
        for logger in _as_list(config.trainer.logger):
            if isinstance(logger, Namespace):
                fill_unset(logger.init_args, self.logger_arguments)
        if isinstance(config.trainer.profiler, Namespace):
            fill_unset(config.trainer.profiler, {"dirpath": str(self.folder)})
        for key in ("checkpoint", "resume"):
            config[key].dirpath = config[key].dirpath or str(self.folder / "checkpoints")

    def _shrink(self) -> None:
        for key in ("data", "model"):
            _shrink_class(self.config[key], key)

    def _apply_trainer_defaults(self) -> None:
        chosen: dict[str, tuple[Any, str]] = {}
        for source in (self.model, self.datamodule):
            offered = source.trainer_defaults() if hasattr(source, "trainer_defaults") else {}
            name = type(source).__name__
            for key, value in offered.items():
                if key in self.written:
                    continue
                other, owner = chosen.get(key, (value, name))
                if other != value:
                    raise UserError(f"trainer.{key}: {owner} needs {other} and {name} needs {value}; write the one you want")
                chosen[key] = (value, name)
        for key, (value, _) in chosen.items():
            self.config_init.trainer[key] = self.config.trainer[key] = value


def _shrink_class(chosen: Namespace, key: str) -> None:
    """Set what a class calls ``smoke``, then do so with the classes that it is built of."""
    for name, value in getattr(resolve_name(chosen.class_path), "smoke", {}).items():
        chosen.init_args[name] = value
        rank_zero_info(f"smoke: {key}.{name} = {value}")
    for name, value in vars(chosen.init_args).items() if "init_args" in chosen else ():
        if isinstance(value, Namespace) and "class_path" in value:
            _shrink_class(value, f"{key}.{name}")


def instantiate_data(parser: LightningArgumentParser, config: Namespace) -> LightningDataModule:
    """Return the data module of a parsed config, after it has filled what the model leaves to the data."""
    datamodule = parser.instantiate(Namespace(data=config.data)).data
    if hasattr(datamodule, "model_arguments"):
        fill_unset(config.model, datamodule.model_arguments())
    return datamodule


def fill_unset(config: Namespace, values: dict[str, Any]) -> None:
    """Set every key of ``values`` that occurs in ``config``, at any depth, with value None."""
    for key, value in vars(config).items():
        if value is None and key in values:
            config[key] = values[key]
        for nested in _as_list(value):
            if isinstance(nested, Namespace):
                fill_unset(nested, values)


def _as_list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value] if value is not None and value is not True and value is not False else []

"""One run: decide on the folder, build, train, test, and leave a summary."""

from __future__ import annotations

import math
import os
import shlex
import signal
import sys
import time
from pathlib import Path
from typing import Any

import torch
from lightning import LightningModule, Trainer
from lightning.pytorch.callbacks import ModelCheckpoint, Timer
from lightning.pytorch.trainer.states import TrainerStatus
from lightning.pytorch.utilities.exceptions import SIGTERMException
from lightning.pytorch.utilities.model_helpers import is_overridden
from lightning.pytorch.utilities.rank_zero import rank_zero_info, rank_zero_warn

from callbacks.own_steps import steps_done
from launcher import errors, provenance, run_folder
from launcher.arguments import Arguments, written_trainer_keys
from launcher.checkpoint_io import readable_checkpoint
from launcher.cli import LeydenCLI
from launcher.cluster import is_rank_zero, leave_process_group
from launcher.errors import UserError
from launcher.rendezvous import decide_on_rank_zero
from launcher.report import result_table
from launcher.run_folder import RunFolder


class Run:
    """What one command does.

    Args:
        typed: the parsed command line.
        argv: the command line as typed.
    """

    def __init__(self, typed: Arguments, argv: list[str]) -> None:
        self.typed = typed
        self.command = shlex.join(["python", "train.py", *argv])
        self.begin = time.monotonic()
        self.train_seconds = 0.0
        self.trained_steps = 0

    def execute(self) -> int:
        """Run the command and return the exit status."""
        if self.typed.run_name is None:
            raise UserError("model: nothing chosen; give an experiment with --config, `python train.py --list` shows them")
        decision = decide_on_rank_zero(self._decide)
        self.folder = RunFolder(Path(decision["folder"]), self.typed.run_name)
        self.continued: bool = decision["continued"]
        self.checkpoint: str | None = decision["checkpoint"] or self.typed.ckpt_path
        self.trainer: Trainer | None = None
        try:
            status = self._run(self._build(decision["resume_step"]))
            leave_process_group()
            return status
        except BaseException as error:
            running = self._training_has_begun()
            if is_rank_zero() and not self.continued and not running:
                self.folder.discard()
            if self.typed.debug or isinstance(error, UserError) or not isinstance(error, Exception):
                raise
            message = errors.explain(error, self.checkpoint, running)
            if message is None:
                raise
            raise UserError(message) from error

    def _decide(self) -> dict[str, Any]:
        root, name = self.typed.run_root, self.typed.run_name
        assert name is not None
        folder = None
        if self.typed.resume or int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")):
            folder = run_folder.unfinished(root, name)
        elif int(os.environ.get("SLURM_RESTART_COUNT", "0")):
            folder = run_folder.unfinished(root, name, os.environ.get("SLURM_JOB_ID"))
        if folder is None:
            if self.typed.resume:
                raise UserError(f"--resume: no unfinished run under {root / name}; start one without --resume")
            folder = RunFolder.create(root, name, self.typed.subcommand or "fit")
            return {"folder": str(folder.path.resolve()), "continued": False, "checkpoint": None, "resume_step": None}
        folder.drop_requeue_checkpoints()
        path, step = _newest_readable(folder)
        return {"folder": str(folder.path.resolve()), "continued": True, "checkpoint": path, "resume_step": step}

    def _build(self, resume_step: int | None) -> LeydenCLI:
        typed = self.typed
        if self.continued:
            typed.configs = [self.folder.config, *typed.configs[1:]]
        cli = LeydenCLI(
            typed.for_lightning(),
            self.folder.path,
            run_id=self.folder.identity["id"],
            run_name=self.folder.name,
            resume_step=resume_step,
            written=written_trainer_keys(typed.configs, typed.rest),
        )
        self.trainer = cli.trainer
        if is_rank_zero() and not self.continued:
            cli.config.run.root, cli.config.run.name = str(typed.run_root), typed.run_name
            cli.save_config(self.folder.config)
        return cli

    def _run(self, cli: LeydenCLI) -> int:
        subcommand = self.typed.subcommand or "fit"
        if subcommand != "fit" and self.checkpoint is None:
            rank_zero_info(f"{subcommand}: no --ckpt_path was given, the model keeps the weights that it begins with")
        trainer = cli.trainer
        model = _compiled(cli.model) if cli.config.run.compile else cli.model
        passed = {"model": model, "datamodule": cli.datamodule, "weights_only": True}
        try:
            if subcommand == "predict":
                predictions = trainer.predict(**passed, ckpt_path=self.checkpoint)
                rank = f"_{trainer.global_rank}" if trainer.world_size > 1 else ""
                torch.save(predictions, self.folder.path / f"predictions{rank}.pt")
                self._finish(cli, {})
                return 0
            metrics: dict[str, float] = {}
            if subcommand == "fit":
                metrics |= self._fit(trainer, passed)
                if self.typed.subcommand is None and _has_test(cli):
                    metrics |= _single(trainer.test(**passed, ckpt_path=self._best(trainer, model), verbose=False))
            else:
                verb = getattr(trainer, subcommand)
                metrics |= _single(verb(**passed, ckpt_path=self.checkpoint, verbose=False))
        except SystemExit as stop:
            if trainer.state.status != TrainerStatus.INTERRUPTED:
                raise
            return self._interrupted(stop)
        self._finish(cli, metrics)
        return 0

    def _fit(self, trainer: Trainer, passed: dict[str, Any]) -> dict[str, float]:
        if not _trains(trainer, passed["model"]):
            return {}
        trainer.fit(**passed, ckpt_path=self.checkpoint)
        timer = next(callback for callback in trainer.callbacks if isinstance(callback, Timer))  # type: ignore[attr-defined]
        self.train_seconds = timer.time_elapsed("train")
        self.trained_steps = steps_done(trainer, passed["model"])
        return {key: float(value) for key, value in trainer.callback_metrics.items() if key.startswith("val/")}

    def _best(self, trainer: Trainer, model: LightningModule) -> str | None:
        checkpoint = trainer.checkpoint_callback
        if isinstance(checkpoint, ModelCheckpoint) and checkpoint.best_model_path:
            return checkpoint.best_model_path
        if _trains(trainer, model):
            rank_zero_warn("no validation chose a best checkpoint: the test uses the last weights")
        return None

    def _finish(self, cli: LeydenCLI, metrics: dict[str, float]) -> None:
        trainer = cli.trainer
        if not trainer.is_global_zero:
            return
        checkpoint = trainer.checkpoint_callback
        summary = {
            "name": self.folder.name,
            "status": "finished",
            "seed": cli.config.seed_everything,
            "metrics": {key: value if math.isfinite(value) else None for key, value in metrics.items()},  # JSON has no NaN
            "steps": self.trained_steps,
            "epochs": trainer.current_epoch,
            "train_seconds": round(self.train_seconds, 2),
            "wall_seconds": round(time.monotonic() - self.begin, 2),
            "parameters": sum(p.numel() for p in cli.model.parameters() if p.requires_grad),
            "best_checkpoint": getattr(checkpoint, "best_model_path", "") or None,
            "versions": provenance.versions(),
            "git_revision": provenance.git_revision(),
            "command": self.command,
        }
        self.folder.write_summary(summary)
        for logger in trainer.loggers:
            if hasattr(logger, "finish"):
                logger.finish()
        if metrics:
            print(result_table(self.folder, self.typed.run_root, cli.config.checkpoint.monitor or ""))
        print(_where_to_look(self.folder, self.typed.run_root))

    def _interrupted(self, stop: SystemExit) -> int:
        term = isinstance(stop, SIGTERMException)
        if is_rank_zero():
            hint = f"continue with: {self.command}{'' if self.typed.resume else ' --resume'}"
            kept = self.folder.checkpoints()
            print(
                f"\nstopped by {'SIGTERM' if term else 'Ctrl-C'}; {hint if kept else 'no checkpoint was written yet'}",
                file=sys.stderr,
            )
        return 128 + (signal.SIGTERM if term else signal.SIGINT)

    def _training_has_begun(self) -> bool:
        return self.trainer is not None and self.trainer.fit_loop.epoch_loop.batch_progress.total.ready > 0


def _newest_readable(folder: RunFolder) -> tuple[str | None, int]:
    for path in folder.checkpoints():
        checkpoint = readable_checkpoint(path)
        if checkpoint is not None:
            return str(path.resolve()), checkpoint["callbacks"]["ExactResume"]["logged_steps"]
        print(f"warning: {path} is torn and is passed over", file=sys.stderr)
    print(f"{folder.path} holds no checkpoint yet: it begins again", file=sys.stderr)
    return None, 0


def _compiled(model: LightningModule) -> Any:
    """Compile what the module's own ``compile`` says is worth it, else its steps as a whole."""
    if type(model).compile is torch.nn.Module.compile:
        return torch.compile(model)
    model.compile()
    return model


def _trains(trainer: Trainer, model: LightningModule) -> bool:
    """Return whether there is anything to train: a module without ``training_step`` is only tested."""
    return trainer.max_steps != 0 and trainer.max_epochs != 0 and is_overridden("training_step", model)


def _has_test(cli: LeydenCLI) -> bool:
    offered = is_overridden("test_dataloader", cli.datamodule) and is_overridden("test_step", cli.model)
    return offered and getattr(cli.datamodule, "test_set", True) is not None


def _single(results: Any) -> dict[str, float]:
    return {key: value for result in results or [] for key, value in result.items()}


def _where_to_look(folder: RunFolder, root: Path) -> str:
    path = os.path.relpath(folder.path)
    figures = sorted((folder.path / "figures").glob("*.png"))
    lines = [f"run folder   {path}"]
    if figures:
        lines.append(f"figures      {path}/figures ({len(figures)})")
    lines.append(f"dashboard    tensorboard --logdir {root}")
    return "\n".join(lines)

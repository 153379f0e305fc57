"""Weights & Biases as this project wants it: never a question, the whole configuration, summaries worth sorting by."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml
from lightning.pytorch.callbacks import ModelCheckpoint
from lightning.pytorch.loggers import WandbLogger
from lightning.pytorch.utilities import rank_zero_info, rank_zero_only


class RunWandbLogger(WandbLogger):
    """W&B logger of one run folder.

    - Without a key (``WANDB_API_KEY``, a ``wandb login`` in netrc) and without ``WANDB_MODE`` the run is recorded offline below
      ``save_dir/wandb``, one log line says so, and ``wandb sync`` uploads it later. It never asks for a login.
    - Every curve has ``trainer/global_step`` as x axis. W&B's config holds the run folder's ``config.yaml`` and the
      hyperparameters of the model. Tags and group come from ``run_name``: method and task.
    - The summary keeps the last value of each metric, and under ``best/`` the validation metrics at the best checkpoint.

    Args:
        save_dir: run folder; the launcher fills it.
        run_name: ``method/task``; the launcher fills it.
        run_id: what identifies the run for good; the launcher fills it with the same value when a run is resumed, and W&B then
            continues the same curves.
        project: W&B project.
        entity: W&B user or team, by default the one of the key.
        tags: further tags.
        notes: a remark about the run.
        log_model: upload checkpoints as artifacts.
    """

    def __init__(
        self,
        save_dir: str | None = None,
        run_name: str | None = None,
        run_id: str | None = None,
        project: str = "leyden",
        entity: str | None = None,
        tags: Sequence[str] = (),
        notes: str | None = None,
        log_model: bool = False,
    ) -> None:
        folder = Path(save_dir or ".")
        offline = not _may_go_online()
        if offline and "WANDB_MODE" not in os.environ:
            rank_zero_info(f"W&B: no key found, recording offline in {folder / 'wandb'}; upload later with 'wandb sync'.")
        super().__init__(
            name=f"{run_name}/{folder.name}" if run_name else None,
            save_dir=str(folder),
            id=None if "WANDB_RUN_ID" in os.environ else run_id,
            project=project,
            log_model=log_model,
            entity=entity,
            group=run_name,
            tags=[*(run_name or "").split("/"), *tags] if run_name else list(tags),
            notes=notes,
            mode="offline" if offline else None,
            reinit="create_new",
            settings={"silent": offline},
        )
        del self._wandb_init["anonymous"]  # W&B warns about this former setting whenever it is named
        self._folder = folder
        self._config_sent = False
        self._validation: dict[str, float] = {}

    @rank_zero_only
    def log_hyperparams(self, params: Any) -> None:
        self._send_config()
        super().log_hyperparams(params)

    @rank_zero_only
    def log_metrics(self, metrics: Mapping[str, float], step: int | None = None) -> None:
        self._send_config()
        if any(name.startswith("val/") for name in metrics):
            self._validation = {name: value for name, value in metrics.items() if name.startswith("val/")} | {"step": step or 0}
        super().log_metrics(metrics, step)

    @rank_zero_only
    def after_save_checkpoint(self, checkpoint_callback: ModelCheckpoint) -> None:
        super().after_save_checkpoint(checkpoint_callback)
        score = checkpoint_callback.best_model_score
        if score is not None and self._validation.get(checkpoint_callback.monitor or "") == float(score):
            self.experiment.summary.update({f"best/{name}": value for name, value in self._validation.items()})

    @rank_zero_only
    def finish(self) -> None:
        """End the W&B run; a process that starts several runs calls this after each."""
        if self._experiment is not None:
            self._experiment.finish()
            self._experiment = None

    def _send_config(self) -> None:
        """Hand over the run folder's configuration once."""
        path = self._folder / "config.yaml"
        if not self._config_sent and path.is_file():
            self.experiment.config.update(yaml.safe_load(path.read_text()), allow_val_change=True)
            self._config_sent = True


def _may_go_online() -> bool:
    """Tell whether W&B can work without asking: the user chose a mode, or there is a key."""
    mode = os.environ.get("WANDB_MODE")
    if mode is not None:
        return mode not in ("offline", "dryrun")
    if os.environ.get("WANDB_API_KEY") or os.environ.get("WANDB_IDENTITY_TOKEN_FILE"):
        return True
    from requests.utils import get_netrc_auth

    return get_netrc_auth(os.environ.get("WANDB_BASE_URL", "https://api.wandb.ai")) is not None

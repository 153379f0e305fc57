"""Film an agent at the test."""

from typing import Any

from lightning.pytorch import Callback, LightningModule, Trainer
from torch import Tensor

from callbacks.figures import publish_animation


class EpisodeVideo(Callback):
    """Publish the first test episode as the animation ``episode``; needs ``data.render=true``.

    Args:
        every_nth: decisions from one picture to the next.
        seconds_per_frame: time that each picture stays.

    Raises:
        ValueError: if a number is not positive, or the data module keeps no pictures.
    """

    def __init__(self, every_nth: int = 2, seconds_per_frame: float = 0.06) -> None:
        if every_nth < 1 or seconds_per_frame <= 0:
            raise ValueError(f"EpisodeVideo needs positive numbers, got {every_nth=} and {seconds_per_frame=}")
        self.every_nth, self.seconds_per_frame = every_nth, seconds_per_frame
        self._number: int | None = None

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        if not getattr(trainer.datamodule, "render", False):  # type: ignore[attr-defined]
            raise ValueError("EpisodeVideo needs pictures of the environment: set data.render=true")

    def on_test_batch_end(self, trainer: Trainer, pl_module: Any, outputs: Any, batch: Tensor, *_: Any) -> None:
        if self._number is None:
            self._number = int(batch[0])

    def on_test_end(self, trainer: Trainer, pl_module: Any) -> None:
        number, self._number = self._number, None
        if trainer.is_global_zero and number is not None:
            recording = trainer.datamodule.record_episode(pl_module.exploit, number)  # type: ignore[attr-defined]
            publish_animation(trainer, recording.frames[:: self.every_nth], "episode", self.seconds_per_frame)

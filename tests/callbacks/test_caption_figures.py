from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from lightning.pytorch import LightningModule, Trainer
from torch import Tensor

from callbacks import CaptionFigures
from datamodules import SceneDataModule


class Silent(LightningModule):
    """Says nothing about images and answers no question."""

    def test_step(self, batch: dict[str, Tensor], batch_idx: int, dataloader_idx: int = 0) -> dict[str, Tensor] | None:
        return None if "answer" in batch else {"generated": torch.ones(len(batch["index"]), 1, dtype=torch.long)}


def run_test(folder: Path, data: Any, images: int) -> None:
    trainer = Trainer(
        default_root_dir=folder, accelerator="cpu", logger=False, callbacks=[CaptionFigures(images)],
        enable_progress_bar=False, enable_model_summary=False,
    )  # fmt: skip
    trainer.test(Silent(), datamodule=data, verbose=False)


def test_figures_of_test_sets_with_captions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    data = SceneDataModule("unified", n_test=24, batch_size=8)
    drawn: list[dict[str, Tensor]] = []
    draw = data.plot
    monkeypatch.setattr(data, "plot", lambda sample: drawn.append(sample) or draw(sample))
    run_test(tmp_path, data, images=2)
    assert sorted(path.name for path in (tmp_path / "figures").iterdir()) == ["captions_0.png", "captions_balanced_0.png"]
    for sample, scenes in zip(drawn, (data.test_set.scenes, data.test_suites["balanced"].scenes), strict=True):
        assert set(sample) == {"pixels", "objects", "colours", "generated"}
        assert sample["objects"].tolist() == scenes.objects[:2].tolist()
        assert len(sample["generated"]) == 2


def test_refusals(tmp_path: Path):
    with pytest.raises(ValueError, match="positive number of images"):
        CaptionFigures(0)
    with pytest.raises(ValueError, match="needs a data module with `plot`"):
        CaptionFigures().setup(SimpleNamespace(datamodule=SimpleNamespace()), Silent(), "test")  # type: ignore[arg-type]

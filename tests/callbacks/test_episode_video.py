from pathlib import Path

import pytest
from lightning import Trainer
from PIL import Image

from callbacks import EpisodeVideo
from datamodules import RLDataModule
from lightning_modules import SACModule


def watched(folder: Path, render: bool) -> None:
    data = RLDataModule("gym:Pendulum-v1", eval_episodes=2, test_episodes=2, time_limit=9, render=render)
    module = SACModule(**data.model_arguments(), hidden=[4])
    options = {"logger": False, "enable_progress_bar": False, "enable_checkpointing": False, "default_root_dir": folder}
    Trainer(accelerator="cpu", devices=1, callbacks=[EpisodeVideo(every_nth=2)], **options).test(module, data, verbose=False)


def test_an_episode_is_filmed(tmp_path: Path):
    watched(tmp_path, render=True)
    (path,) = (tmp_path / "figures").iterdir()
    with Image.open(path) as film:
        assert (path.name, film.n_frames, film.size) == ("episode_0.gif", 5, (500, 500))


def test_without_pictures_there_is_no_film(tmp_path: Path):
    with pytest.raises(ValueError, match="set data.render=true"):
        watched(tmp_path, render=False)


def test_impossible_numbers_are_refused():
    with pytest.raises(ValueError, match="every_nth=0"):
        EpisodeVideo(every_nth=0)

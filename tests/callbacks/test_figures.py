import io

import matplotlib
import numpy as np
import pytest
from lightning.pytorch import Callback, Trainer
from lightning.pytorch.demos.boring_classes import BoringModel
from lightning.pytorch.loggers import TensorBoardLogger
from matplotlib.figure import Figure
from PIL import Image
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from callbacks.figure_style import PALETTE, figure_style
from callbacks.figures import publish_animation, publish_figure


class LoggedModel(BoringModel):
    def training_step(self, batch, batch_idx):
        output = super().training_step(batch, batch_idx)
        self.log("train/loss", output["loss"])
        return output


class Plot(Callback):
    figure: Figure

    def on_train_end(self, trainer, pl_module):
        with figure_style():
            self.figure = Figure(figsize=(2, 1))
            self.figure.subplots().plot([0.0, 1.0])
        self.path = publish_figure(trainer, self.figure, "line")


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("run")
    plot = Plot()
    trainer = Trainer(
        default_root_dir=folder,
        max_steps=3,
        limit_val_batches=0,
        log_every_n_steps=1,
        callbacks=[plot],
        logger=TensorBoardLogger(folder, name="", version=""),
        enable_progress_bar=False,
        enable_model_summary=False,
        enable_checkpointing=False,
    )
    trainer.fit(LoggedModel())
    return trainer, plot


def test_png_in_run_folder(run):
    trainer, plot = run
    folder = plot.path.parent
    assert plot.path.name == "line_3.png"
    assert str(folder) == f"{trainer.default_root_dir}/figures"
    assert [path.name for path in folder.iterdir()] == ["line_3.png"]
    image = np.asarray(Image.open(plot.path))
    assert image.shape == (150, 300, 3)
    blue = tuple(int(PALETTE[0][i : i + 2], 16) for i in (1, 3, 5))
    assert (image == blue).all(axis=-1).any(), "the line has the first colour of the palette"


def test_tensorboard_holds_the_same_picture_and_the_scalars(run):
    trainer, plot = run
    events = EventAccumulator(trainer.default_root_dir).Reload()
    (image,) = events.Images("figures/line")
    assert image.step == 3
    stored = Image.open(io.BytesIO(image.encoded_image_string))
    assert np.array_equal(np.asarray(stored), np.asarray(Image.open(plot.path)))
    assert [event.step for event in events.Scalars("train/loss")] == [0, 1, 2]


def test_figure_is_closed(run):
    assert not run[1].figure.axes


def test_pyplot_figure_is_closed_and_backend_kept(run):
    from matplotlib import pyplot

    pyplot.switch_backend("svg")
    figure, _ = pyplot.subplots(figsize=(1, 1))
    publish_figure(run[0], figure, "from_pyplot")
    assert not pyplot.get_fignums()
    assert matplotlib.get_backend() == "svg"


def test_style_ends_with_the_context():
    before = dict(matplotlib.rcParams)
    with figure_style():
        assert matplotlib.rcParams["axes.grid"] is True
    assert dict(matplotlib.rcParams) == before


def test_other_ranks_write_nothing(run, tmp_path, monkeypatch):
    monkeypatch.setattr(type(run[0].strategy), "is_global_zero", False)
    monkeypatch.setattr(run[0], "_default_root_dir", str(tmp_path))
    figure = Figure()
    figure.subplots()
    assert publish_figure(run[0], figure, "other_rank") is None
    assert not list(tmp_path.iterdir())
    assert not figure.axes


def test_name_with_a_slash_is_refused(run):
    with pytest.raises(ValueError, match="figure name 'a/b'"):
        publish_figure(run[0], Figure(), "a/b")


def frames(count):
    return [np.full((4, 6, 3), 40 * i, dtype=np.uint8) for i in range(count)]


def test_animation_beside_the_figures(run):
    trainer = run[0]
    path = publish_animation(trainer, iter(frames(3)), "moving", seconds_per_frame=0.1)
    assert path.name == "moving_3.gif"
    assert path.parent == run[1].path.parent
    assert not list(path.parent.glob(".*")), "no temporary file is left"
    gif = Image.open(path)
    shown = []
    for frame in range(gif.n_frames):
        gif.seek(frame)
        shown.append((gif.convert("RGB").getpixel((2, 2)), gif.info["duration"]))
    assert shown == [((0, 0, 0), 100), ((40, 40, 40), 100), ((80, 80, 80), 400)]
    assert gif.info["loop"] == 0
    assert "figures/moving" not in EventAccumulator(trainer.default_root_dir).Reload().Tags()["images"]
    assert Image.open(publish_animation(trainer, frames(1), "still")).n_frames == 1


def test_other_ranks_draw_no_frames(run, tmp_path, monkeypatch):
    monkeypatch.setattr(type(run[0].strategy), "is_global_zero", False)
    monkeypatch.setattr(run[0], "_default_root_dir", str(tmp_path))
    rest = iter(frames(2))
    assert publish_animation(run[0], rest, "other_rank") is None
    assert len(list(rest)) == 2
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(("count", "name", "message"), [(0, "empty", "'empty' has no frame"), (1, "a/b", "figure name 'a/b'")])
def test_bad_animations_are_refused(run, count, name, message):
    with pytest.raises(ValueError, match=message):
        publish_animation(run[0], frames(count), name)

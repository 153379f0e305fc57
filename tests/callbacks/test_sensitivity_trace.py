from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from lightning.pytorch import LightningModule

from callbacks.figures import rasterise
from callbacks.sensitivity_figures import Word, lorenz_figure, strip_figure
from callbacks.sensitivity_trace import SensitivityTrace, words_of

WORDS = ["<pad>", "a", "star", "ring", "."]
OBJECTS = ["star", "ring"]
TRACE = SimpleNamespace(
    tokens=torch.tensor([1, 2, 3]),
    sensitivity=torch.tensor([0.0, 2.0, 1.0]),
    entropy=torch.tensor([0.5, 0.25, 0.0]),
    strength=torch.tensor([0.0, 1.0, 0.5]),
)


def test_words_that_are_not_there_are_wrong():
    caption = words_of(TRACE, torch.tensor([-1, 0, -1]), WORDS, OBJECTS)
    assert [word.text for word in caption] == ["a", "star", "ring"]
    assert [word.wrong for word in caption] == [False, False, True]
    assert caption[1] == Word("star", 2.0, 0.25, 1.0, False)


def test_the_strip_shows_shares_of_the_largest_values_and_marks_wrong_words():
    caption = words_of(TRACE, torch.tensor([0]), WORDS, OBJECTS)
    figure = strip_figure([caption, caption[:2]])
    first = figure.axes[0]
    assert np.allclose(first.images[0].get_array(), [[0, 1, 0.5], [1, 0.5, 0], [0, 1, 0.5]])
    assert [label.get_text() for label in first.get_xticklabels()] == ["a", "star", "ring"]
    assert [label.get_fontweight() == "bold" for label in first.get_xticklabels()] == [False, False, True]
    assert rasterise(figure).std() > 0


def test_the_lorenz_curve():
    axes = lorenz_figure([0.0, 0.8, 1.0]).axes[0]
    assert np.allclose(axes.lines[0].get_xydata(), [[0, 0], [50, 80], [100, 100]])


def test_what_is_drawn_and_when(monkeypatch: pytest.MonkeyPatch):
    drawn: list[str] = []
    monkeypatch.setattr("callbacks.sensitivity_trace.publish_figure", lambda trainer, figure, name: drawn.append(name))
    module: Any = SimpleNamespace(words=WORDS, object_words=OBJECTS, lorenz=[0.0, 1.0])
    module.trace = lambda batch: [TRACE] * len(batch["objects"])
    trainer: Any = SimpleNamespace(is_global_zero=True)
    callback = SensitivityTrace(images=2)
    captions = {"objects": torch.tensor([[0], [1], [0]])}
    callback.on_test_batch_end(trainer, module, None, captions, 0, 0)
    callback.on_test_batch_end(trainer, module, None, captions, 1, 1)
    callback.on_test_batch_end(trainer, module, None, captions | {"answer": torch.ones(3)}, 0, 1)
    assert not drawn
    callback.on_test_batch_end(trainer, module, None, captions, 0, 1)
    assert drawn == ["trace", "lorenz"]


def test_bad_input():
    with pytest.raises(ValueError, match="got 0 and 1"):
        SensitivityTrace(images=0)
    with pytest.raises(ValueError, match="leave it out"):
        SensitivityTrace().setup(SimpleNamespace(), LightningModule(), "test")  # type: ignore[arg-type]

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from lightning.pytorch import LightningModule
from torch import Tensor

from callbacks import SamplerCurves, TokenSamples
from callbacks.token_figures import LINE_BREAK, Point, image_sheet, sampler_figure, text_sheet

LOGGED = {
    f"test/{name}/calls_{calls}/{metric}": torch.tensor(value)
    for name in ("euler", "lc_8")
    for calls in (4, 8)
    for metric, value in {
        "exact_tv": 0.4 / calls,
        "nll_excess": -0.1,
        "evals_per_sample": calls - 0.5,
        "nfe_calls": calls + 1.0,
    }.items()
}


class Sampled(LightningModule):
    samplers = (SimpleNamespace(label="euler"), SimpleNamespace(label="lc"))
    calls = (2, 4)

    def sample(self, seed_B: Tensor, name: str | None = None, calls: int | None = None) -> Any:
        return SimpleNamespace(x=(seed_B[:, None] + (calls or 0)).expand(-1, 4) % 3)

    def surprise(self, tokens_BD: Tensor, seed_B: Tensor) -> tuple[Tensor, str]:
        return tokens_BD.double().mean(dim=1), "nats"


def trainer(folder: Path, **options: Any) -> Any:
    module = Sampled()
    return SimpleNamespace(
        **{
            "is_global_zero": True,
            "default_root_dir": str(folder),
            "global_step": 7,
            "loggers": [],
            "callback_metrics": LOGGED,
            "lightning_module": module,
            **options,
        }
    )


def files(folder: Path) -> set[str]:
    return {path.name for path in (folder / "figures").glob("*")}


def test_curves_of_what_was_logged(tmp_path: Path):
    logged = {**LOGGED, "test/held_out/exact_tv": torch.tensor(0.01), "test/loss": torch.tensor(1.0)}
    SamplerCurves().on_test_end(trainer(tmp_path, callback_metrics=logged), Sampled())
    assert files(tmp_path) == {"samplers_exact_tv_7.png", "samplers_nll_excess_7.png"}
    SamplerCurves().on_test_end(trainer(tmp_path / "other", is_global_zero=False), Sampled())
    SamplerCurves().on_test_end(trainer(tmp_path / "none", callback_metrics={}), Sampled())
    assert not files(tmp_path / "other") | files(tmp_path / "none")


def test_a_curve_has_both_costs():
    curves = {"euler": [Point(4, 4.0, 0.5), Point(8, 8.0, 0.25)], "lc": [Point(4, 3.5, 0.4), Point(8, 6.0, 0.1)]}
    figure = sampler_figure(curves, "variation", floor=0.05)
    calls, evals = figure.axes
    assert {line.get_label(): line.get_xdata().tolist() for line in calls.lines[:2]} == {"euler": [4, 8], "lc": [4, 8]}
    assert evals.lines[1].get_xdata().tolist() == [3.5, 6.0]
    assert evals.lines[1].get_ydata().tolist() == [0.4, 0.1]
    assert set(calls.lines[2].get_ydata()) == {0.05}
    assert calls.get_yscale() == "log"
    negative = sampler_figure({"euler": [Point(4, 4.0, -0.5)]}, "excess")
    assert negative.axes[0].get_yscale() == "linear"


def test_images_and_texts_of_the_same_seeds(tmp_path: Path):
    module = Sampled()
    seen: list[Tensor] = []

    def as_images(tokens: Tensor) -> Tensor:
        seen.append(tokens)
        return tokens.float().unflatten(1, (1, 2, 2)) - 1

    callback = TokenSamples(samples=3, seed=5)
    callback.setup(trainer(tmp_path), module, "test")
    callback.on_test_end(trainer(tmp_path, datamodule=SimpleNamespace(as_images=as_images)), module)
    assert files(tmp_path) == {"samples_2_calls_7.png", "samples_4_calls_7.png"}
    assert len(seen) == 4
    assert seen[0][:, 0].tolist() == [(5 + 2) % 3, (6 + 2) % 3, (7 + 2) % 3]
    data = SimpleNamespace(decode=lambda ids: "".join("a$\n"[i] for i in np.asarray(ids)))
    TokenSamples(samples=2, calls=[4]).on_test_end(trainer(tmp_path / "text", datamodule=data), module)
    assert files(tmp_path / "text") == {"samples_4_calls_7.png"}
    TokenSamples().on_test_end(trainer(tmp_path / "none", datamodule=SimpleNamespace()), module)
    assert not files(tmp_path / "none")


def test_sheets_show_what_they_are_given():
    sheet = image_sheet({"a": torch.full((2, 1, 2, 3), -1.0), "b": torch.ones(2, 1, 2, 3)})
    (axes,) = sheet.axes
    pixels = axes.images[0].get_array()
    assert pixels.shape == (5, 7)
    assert pixels[0].tolist() == [0, 0, 0, 1, 0, 0, 0]
    assert pixels[4].tolist() == [1] * 7
    assert [label.get_text() for label in axes.get_yticklabels()] == ["a", "b"]
    written = [text.get_text() for text in text_sheet({"euler": [("be\n$", 2.5)]}, "nats").axes[0].texts]
    assert written == ["nats", "euler", f"be{LINE_BREAK}\\$", "2.50"]


def test_bad_use_is_refused(tmp_path: Path):
    for options in ({"samples": 0}, {"calls": [0]}):
        with pytest.raises(ValueError, match="positive numbers"):
            TokenSamples(**options)
    with pytest.raises(ValueError, match="samples tokens"):
        TokenSamples().setup(trainer(tmp_path), LightningModule(), "test")

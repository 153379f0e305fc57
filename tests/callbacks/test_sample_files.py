from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from PIL import Image

from callbacks.sample_files import SampleFiles, sheet_figure


def test_a_file_holds_its_image(tmp_path: Path):
    trainer = SimpleNamespace(default_root_dir=str(tmp_path))
    image = torch.rand(2, 3, 4, 5, generator=torch.Generator().manual_seed(0))
    SampleFiles().on_predict_batch_end(trainer, None, {"image": image, "index": torch.tensor([7, 11])}, {}, 0)
    for row, name in enumerate(("000007.png", "000011.png")):
        kept = np.asarray(Image.open(tmp_path / "samples" / name))
        assert np.abs(kept / 255 - image[row].permute(1, 2, 0).numpy()).max() <= 0.5 / 255 + 1e-6
    SampleFiles().on_test_batch_end(trainer, None, {"image": image[:1, :1], "index": torch.tensor([3])}, {}, 0)
    assert Image.open(tmp_path / "samples" / "000003.png").mode == "L"


def test_the_sheet_runs_row_after_row():
    images = torch.arange(5).view(5, 1, 1, 1).expand(5, 3, 2, 2) / 5
    (axes,) = sheet_figure(images, 3).axes
    sheet = np.asarray(axes.images[0].get_array())
    assert [round(float(sheet[1 + 3 * (i // 3), 1 + 3 * (i % 3), 0]) * 5) for i in range(5)] == [0, 1, 2, 3, 4]


def test_bad_input(tmp_path: Path):
    with pytest.raises(ValueError, match="columns=0"):
        SampleFiles(columns=0)
    with pytest.raises(ValueError, match="return image and index"):
        SampleFiles().on_test_batch_end(SimpleNamespace(default_root_dir=str(tmp_path)), None, {"loss": 1}, {}, 0)

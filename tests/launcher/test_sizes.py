"""The models of the papers' configs can be built, and are as large as they say."""

from pathlib import Path

import pytest
from lightning.pytorch import LightningModule

from launcher.paths import CONFIGS
from launcher.sizes import main, meta_model, paper_configs, parameters

TOY = Path(__file__).parents[1] / "support" / "toy.yaml"
PUBLISHED = {"dtop_p/dclm_paper": 6.9e9, "dtop_p/dclm_topk_paper": 6.9e9, "dtop_p/dit_paper": 3.4e9}


@pytest.mark.parametrize("path", paper_configs(), ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_the_model_of_a_paper_is_built_without_memory(path: Path):
    model = meta_model(path)
    assert isinstance(model, LightningModule)
    assert all(parameter.is_meta for parameter in model.parameters())
    count = parameters(model)
    print(path.name, f"{count:,}")
    assert count > 100_000
    published = PUBLISHED.get(f"{path.parent.name}/{path.stem}")
    assert published is None or count == pytest.approx(published, rel=0.01)


def test_the_papers_of_all_methods_are_there():
    assert {path.parent.name for path in paper_configs()} >= {"dtop_p", "gesc", "protosac", "r2r2", "sac", "sheaf_admm"}


def test_the_data_dictate_sizes(capsys: pytest.CaptureFixture[str]):
    assert main([str(TOY)]) == 0  # three features, which only the data know
    assert capsys.readouterr().out.split()[1:] == ["ToyModule", str(3 * 8 + 8 + 8 + 1)]


def test_an_overlay_is_refused(capsys: pytest.CaptureFixture[str]):
    assert main([str(CONFIGS / "overlays" / "gpu.yaml")]) == 2
    assert "names no data" in capsys.readouterr().err

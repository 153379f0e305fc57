from pathlib import Path

import pytest
import yaml

from benchmarks.calculations import peer_return as module
from benchmarks.calculations.peer_return import peer_return
from benchmarks.experiments import REPOSITORY


def test_it_follows_the_config_and_is_repeatable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    pytest.importorskip("stable_baselines3")
    config = yaml.safe_load((REPOSITORY / "configs/sac/pendulum.yaml").read_text())
    config["model"]["init_args"] |= {"hidden": [8], "batch_size": 8}
    config["data"]["init_args"] |= {
        **{"total_env_steps": 60, "eval_every_env_steps": 20, "learning_starts": 10, "time_limit": 10},
        **{"eval_episodes": 2, "test_episodes": 3},
    }
    (tmp_path / "configs" / "sac").mkdir(parents=True)
    (tmp_path / "configs" / "sac" / "tiny.yaml").write_text(yaml.safe_dump(config))
    monkeypatch.setattr(module, "REPOSITORY", tmp_path)
    one, other = peer_return("tiny", 1), peer_return("tiny", 2)
    assert one.keys() == {*(f"val/return_mean_at_{step}" for step in (20, 40, 60)), "test/return_mean"}
    assert one == peer_return("tiny", 1) != other
    assert all(-17 * 10 < value < 0 for value in one.values())

"""Distilling a SAC actor: which teacher is taken, what trains, and a killed run that goes on as if it had not been."""

import csv
import json
from pathlib import Path

import pytest
import torch
from processes import launch
from resumption import assert_same_run, killed_and_continued, undisturbed
from short_runs import CONFIGS

from lightning_modules.finished_runs import find_checkpoint
from lightning_modules.protosac.distillation import KMeansPolicyModule, PWNetModule
from lightning_modules.protosac.teacher import load_teacher
from lightning_modules.rl.sac_module import SACModule

EXPERIMENTS = ["pendulum_pwnet", "pendulum_shared_pwnet", "pendulum_kmeans"]


def finished_run(folder: Path, status: str = "finished") -> SACModule:
    module = SACModule(obs_dim=3, action_dim=1, hidden=[6, 5])
    (folder / "checkpoints").mkdir(parents=True)
    best = folder / "checkpoints" / "best.ckpt"
    torch.save({"state_dict": module.state_dict()}, best)
    (folder / "summary.json").write_text(json.dumps({"status": status, "best_checkpoint": str(best)}))
    return module


def test_a_teacher_acts_as_the_actor_that_was_saved(tmp_path: Path):
    trained, obs = finished_run(tmp_path / "0"), torch.randn(4, 3)
    for given in (tmp_path, tmp_path / "0", tmp_path / "0" / "checkpoints" / "best.ckpt"):
        assert torch.equal(load_teacher(str(given), 3, 1).mode(obs), trained.exploit(obs))
    student = PWNetModule(str(tmp_path), num_prototypes=2, obs_dim=3, action_dim=1)
    assert torch.equal(student.demonstrate(obs), trained.exploit(obs))
    latent = trained.actor.network[2](trained.actor.network[0](obs).relu()).relu()
    assert torch.equal(student(obs), student.network(latent))


def test_exploration_is_the_teachers_own(tmp_path: Path):
    trained, obs = finished_run(tmp_path / "0"), torch.randn(4, 3)
    student = PWNetModule(str(tmp_path), num_prototypes=2, obs_dim=3, action_dim=1)
    torch.manual_seed(0)
    expected = trained.explore(obs)
    torch.manual_seed(0)
    assert torch.equal(student.explore(obs), expected)


def test_the_newest_finished_run_counts(tmp_path: Path):
    for number in (2, 9, 10):
        finished_run(tmp_path / str(number))
    finished_run(tmp_path / "11", "interrupted")
    (tmp_path / "12").mkdir()
    assert find_checkpoint(tmp_path, "teacher", "configs/sac") == tmp_path / "10" / "checkpoints" / "best.ckpt"


@pytest.mark.parametrize("path", ["runs/sac/hopper", "runs/sac/hopper/3", "runs/sac/hopper/3/checkpoints/last.ckpt"])
def test_a_missing_teacher_is_refused(path: str):
    with pytest.raises(FileNotFoundError, match=f"{path} .* `python train.py --config configs/sac/hopper.yaml`"):
        PWNetModule(path, obs_dim=3, action_dim=1)


def test_other_agents_are_refused(tmp_path: Path):
    finished_run(tmp_path / "0")
    with pytest.raises(ValueError, match="acts on 3 observations with 1 actions, the environment has 5 and 2"):
        load_teacher(str(tmp_path), 5, 2)
    other = tmp_path / "other.ckpt"
    torch.save({"state_dict": {"net.0.weight": torch.zeros(1)}}, other)
    with pytest.raises(ValueError, match="holds no actor of SAC"):
        load_teacher(str(other), 3, 1)
    torch.save({"state_dict": {}, "RLDataModule": {"normaliser": {"count": 1}}}, other)
    with pytest.raises(ValueError, match="normalised observations"):
        load_teacher(str(other), 3, 1)


def test_an_untrained_teacher_has_the_sizes_given():
    assert [len(p) for p in load_teacher("random", 3, 2, [7]).parameters()] == [7, 7, 4, 4]


@pytest.mark.parametrize("shared", [False, True])
def test_gradients_reach_the_student_alone(tmp_path: Path, shared: bool):
    finished_run(tmp_path / "0")
    student = PWNetModule(str(tmp_path), num_prototypes=2, shared=shared, obs_dim=3, action_dim=1)
    student(torch.randn(4, 3)).square().sum().backward()
    assert all(p.grad is None and not p.requires_grad for p in student.teacher.parameters())
    assert all(p.grad is not None for p in student.network.parameters())


def test_sizes_are_needed():
    with pytest.raises(ValueError, match="KMeansPolicyModule needs obs_dim and action_dim"):
        KMeansPolicyModule("random")


def rows(folder: Path, column: str) -> list[float]:
    with (folder / "metrics.csv").open() as file:
        return [float(row[column]) for row in csv.DictReader(file) if row.get(column)]


@pytest.fixture(scope="module")
def taught(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which a SAC run has finished."""
    cwd = tmp_path_factory.mktemp("taught")
    finished_run(cwd / "runs" / "sac" / "pendulum" / "0")
    return cwd


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_a_run_from_end_to_end(taught: Path, name: str):
    words = [
        *("--config", CONFIGS / f"protosac/{name}.yaml"),
        *("--data.init_args.demonstrations=300", "--data.init_args.time_limit=30", "--data.init_args.batch_size=16"),
        *("--data.init_args.test_episodes=2", "--trainer.log_every_n_steps=1"),
    ]
    few_epochs = [] if name == "pendulum_kmeans" else ["--trainer.max_epochs=10"]
    (done,) = launch([*words, *few_epochs], taught)
    assert done.status == 0, done.output
    assert "returned `None`" not in done.output
    folder = taught / "runs" / "protosac" / name / "0"
    summary = json.loads((folder / "summary.json").read_text())
    best = torch.load(summary["best_checkpoint"], weights_only=True)["state_dict"]
    assert summary["metrics"].keys() >= {"val/action_error", "test/return_mean", "test/return_std"}
    loss = rows(folder, "train/loss")
    if name == "pendulum_kmeans":
        assert len(loss) == 15
        assert best["policy.centroids"].std(dim=0).min() > 0
    else:
        assert sum(loss[-15:]) < 0.1 * sum(loss[:15])


def test_a_missing_teacher_is_one_line(tmp_path: Path):
    (refused,) = launch(["--config", CONFIGS / "protosac/pendulum_pwnet.yaml"], tmp_path)
    assert refused.status == 2, refused
    assert refused.output.strip().endswith("train it with `python train.py --config configs/sac/pendulum.yaml`")


SHORT = [
    *("--data.init_args.demonstrations=60", "--data.init_args.time_limit=10", "--data.init_args.batch_size=8"),
    *("--data.init_args.test_episodes=2", "--model.init_args.teacher=random", "--model.init_args.hidden=[8]"),
    *("--trainer.max_epochs=3", "--trainer.log_every_n_steps=1", "--resume.every_n_steps=2"),
]
"""6 episodes of 10 states, 5 of them for training: 6 steps an epoch."""
PWNET = ["--config", CONFIGS / "protosac/pendulum_pwnet.yaml", *SHORT]
SHARED = ["--config", CONFIGS / "protosac/pendulum_shared_pwnet.yaml", *SHORT]


def test_a_killed_run_goes_on(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory):
    reference = undisturbed(tmp_path_factory.mktemp("undisturbed"), SHARED, 1)
    assert len(rows(reference, "train/loss")) == 18
    assert_same_run(killed_and_continued(tmp_path, SHARED, 1, "9 batch_end"), reference)


def test_a_run_does_not_go_on_with_another_teacher(tmp_path: Path):
    runs = tmp_path / "runs" / "sac" / "pendulum"
    finished_run(runs / "0")
    words = [word for word in SHARED if word != "--model.init_args.teacher=random"]
    (killed,) = launch([*words, '--trainer.callbacks+={"class_path": "toy.KillAt"}'], tmp_path, env={"KILL_AT": "9 batch_end"})
    assert killed.status < 0, killed
    finished_run(runs / "1")
    (refused,) = launch([*SHARED[:2], "--resume"], tmp_path)
    assert refused.status == 2, refused
    assert "is no longer the one that this run began with" in refused.output


def test_two_processes_train_as_one(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory):
    alone = undisturbed(tmp_path_factory.mktemp("alone"), PWNET, 1)
    together = undisturbed(tmp_path, [*PWNET, "--config", CONFIGS / "overlays/ddp.yaml"], 2)
    for column in ("val/action_error", "test/return_mean"):
        assert rows(together, column) == pytest.approx(rows(alone, column), rel=1e-3)


def test_clusters_are_found_on_one_process(tmp_path: Path):
    words = ["--config", CONFIGS / "protosac/pendulum_kmeans.yaml", "--config", CONFIGS / "overlays/ddp.yaml", *SHORT]
    refused = launch([*words, "--trainer.devices=2", "--trainer.accelerator=cpu"], tmp_path, 2)
    assert all("run it with trainer.devices=1" in one.output for one in refused)

"""The suite's numbers come from the histories that a module returns; here these are written down by hand."""

from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.cli import LightningArgumentParser
from lightning.pytorch.demos.boring_classes import BoringModel
from torch import nn
from torch.utils.data import DataLoader

from callbacks.intervention_figures import liar_figure, solved_figure
from callbacks.intervention_suite import InterventionSuite, liar_ranks, right_for_good

K, N, B = 6, 3, 4

PLAIN = torch.tensor([[0, 0, 0, 0], [1, 0, 0, 0], [1, 1, 1, 0], [1, 1, 1, 0], [1, 1, 1, 0], [1, 1, 1, 0]], dtype=torch.bool)
"""Samples 0, 1 and 2 end right, sample 3 does not."""
KICKED = torch.tensor([[0, 0, 0, 0], [1, 0, 0, 0], [1, 1, 0, 1], [1, 0, 0, 1], [1, 1, 1, 1], [1, 1, 0, 1]], dtype=torch.bool)
"""After a kick in iteration 2: 0 stays right, 1 is right for good from 5 on, 2 is lost, 3 happens to be right."""
MEMORY = torch.tensor([[5.0, 1.0, 1.0, 2.0], [1.0, 3.0, 2.0, 2.0], [1.0, 1.0, 4.0, 1.0]])
LIED = torch.tensor([[6.0, 2.5, 1.0, 2.0], [1.0, 3.0, 3.0, 2.5], [1.0, 1.0, 5.5, 1.0]])


class Event:
    """An intervention as the suite sees it, with the history that it leads to."""

    def __init__(self, correct=PLAIN, memory=MEMORY, **attributes):
        self.correct, self.memory = correct, memory
        self.__dict__.update(attributes)

    def validate(self, num_agents: int, steps: int) -> None: ...


def events():
    liar = Event(memory=LIED, liars=torch.tensor([0, 0, 1, 1]))
    return {"kick": Event(KICKED, first=2, last=2), "to_the_end": Event(~PLAIN, first=3, last=6), "liar": liar}


class Agents(LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(1, 1)
        self.seen = []

    def admm_history(self, batch, steps, interventions=()):
        self.seen.append(float(batch[0]))
        event = interventions[0] if interventions else Event()
        samples = slice(0, 1) if self.global_rank else slice(None)
        if hasattr(event, "liars"):
            event.liars = event.liars[samples]
        memory = event.memory[:, samples].expand(steps, -1, -1)
        return SimpleNamespace(correct=event.correct[:, samples], memory=memory)

    def test_step(self, batch, batch_idx, dataloader_idx=0): ...


def loaders(batches: int = 3):
    return [DataLoader([torch.full((1,), 10.0 * i + j) for j in range(batches)], batch_size=None) for i in range(2)]


class Keep(Callback):
    """Write down what each rank has logged."""

    def on_test_end(self, trainer, pl_module):
        torch.save(dict(trainer.callback_metrics), Path(trainer.default_root_dir) / f"{trainer.global_rank}.pt")


def run_test(folder, suite, model=None, **options):
    trainer = Trainer(
        default_root_dir=folder,
        callbacks=[suite, Keep()],
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        enable_checkpointing=False,
        accelerator="cpu",
        **options,
    )
    return trainer.test(model or Agents(), loaders(), verbose=False)


EXPECTED = {
    "none/solved": 3 / 4,
    "kick/solved": 3 / 4,
    "kick/recovered": 2 / 3,
    "kick/recovery_iterations": (0 + 3) / 2,
    "to_the_end/solved": 1 / 4,
    "liar/solved": 3 / 4,
    "liar/found": 2 / 4,
    "liar/found_by_change": 3 / 4,
}


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder, model = tmp_path_factory.mktemp("run"), Agents()
    return folder, model, run_test(folder, InterventionSuite(events(), steps=K, batches=2), model)


def test_metrics(run):
    folder, model, results = run
    assert len(results) == 2
    expected = pytest.approx({f"test/intervention/{name}": value for name, value in EXPECTED.items()})
    assert results[0] == expected
    assert {name: float(value) for name, value in torch.load(folder / "0.pt").items()} == expected


def test_only_the_first_batches_of_the_main_test_set_are_run(run):
    assert run[1].seen == [0.0] * 4 + [1.0] * 4


def test_figures(run):
    assert {path.name for path in (run[0] / "figures").iterdir()} == {"interventions_test_0.png", "liars_test_0.png"}


def test_sums_over_ranks_of_unequal_size(tmp_path):
    """Rank 0 sees all four samples, rank 1 the first alone."""
    options = {"strategy": "ddp_fork", "devices": 2, "use_distributed_sampler": False}
    run_test(tmp_path, InterventionSuite(events(), steps=K), **options)
    first, second = (torch.load(tmp_path / f"{rank}.pt") for rank in (0, 1))
    assert {name: float(value) for name, value in first.items()} == {name: float(value) for name, value in second.items()}
    found = {name.removeprefix("test/intervention/"): float(value) for name, value in first.items()}
    assert found == pytest.approx(
        {
            "none/solved": 4 / 5,
            "kick/solved": 4 / 5,
            "kick/recovered": 3 / 4,
            "kick/recovery_iterations": 3 / 3,
            "to_the_end/solved": 1 / 5,
            "liar/solved": 4 / 5,
            "liar/found": 3 / 5,
            "liar/found_by_change": 4 / 5,
        }
    )


def test_nothing_recovered_gives_no_mean(tmp_path):
    lost = Event(torch.zeros_like(PLAIN), first=1, last=2)
    (results, _) = run_test(tmp_path, InterventionSuite({"lost": lost}, steps=K))
    assert results["test/intervention/lost/recovered"] == 0
    assert "test/intervention/lost/recovery_iterations" not in results


def test_right_for_good():
    assert right_for_good(KICKED).tolist() == [2, 5, K + 1, 3]
    assert right_for_good(torch.ones(3, 1, dtype=torch.bool)).tolist() == [1]


def test_liar_ranks():
    assert liar_ranks(MEMORY, torch.tensor([0, 1, 1, 2])).tolist() == [1, 1, 2, 3]
    assert liar_ranks(MEMORY, torch.tensor([1, 0, 0, 0])).tolist() == [3, 3, 3, 2], "ties count against the liar"


def test_curves_and_windows_are_drawn():
    solved = {"none": PLAIN.float().mean(dim=1), "kick": KICKED.float().mean(dim=1)}
    above, below = solved_figure(solved, {"kick": (2, 3)}).axes
    assert [line.get_label() for line in above.lines] == ["undisturbed", "kick"]
    assert list(above.lines[0].get_ydata()) == [0, 0.25, 0.75, 0.75, 0.75, 0.75]
    assert list(above.lines[1].get_ydata()) == [0, 0.25, 0.75, 0.5, 1.0, 0.75]
    assert list(above.lines[1].get_xdata()) == [1, 2, 3, 4, 5, 6]
    (bar,) = below.collections
    assert bar.get_datalim(below.transData).intervalx.tolist() == [1.5, 3.5]


def test_rank_histogram():
    (axes,) = liar_figure({"liar": torch.tensor([[1, 3, 3, 2], [1, 1, 1, 2]])}, num_agents=3).axes
    assert [bar.get_height() for bar in axes.patches] == [0.25, 0.25, 0.5, 0.75, 0.25, 0]
    assert axes.lines[0].get_ydata()[0] == pytest.approx(1 / 3)
    assert axes.get_legend_handles_labels()[1] == [
        "chance: first in 33.3%",
        "by |u|: first in 25%",
        "by the change of |u| (oracle): first in 75%",
    ]


def test_ranks_among_many_agents_share_bars():
    (axes,) = liar_figure({"liar": torch.tensor([[1, 2, 3, 60], [4, 5, 6, 6]])}, num_agents=60).axes
    heights = [bar.get_height() for bar in axes.patches]
    assert heights[:20] == [0.75, *[0] * 18, 0.25], "three ranks a bar"
    assert heights[20:22] == [0, 1]
    assert axes.lines[0].get_ydata()[0] == pytest.approx(3 / 60)


def test_interventions_come_from_a_configuration():
    parser = LightningArgumentParser()
    parser.add_subclass_arguments(InterventionSuite, "suite")
    folder = "lightning_modules.sheaf_admm"
    kick = {"class_path": f"{folder}.interventions.KickConsensus", "init_args": {"k": 2, "scale": 1.5}}
    liar = {"class_path": f"{folder}.view_interventions.LiarViews", "init_args": {"seed": 4}}
    arguments = {"interventions": {"kick": kick, "liar": liar}, "steps": 5}
    config = parser.parse_object({"suite": {"class_path": "callbacks.InterventionSuite", "init_args": arguments}})
    suite = parser.instantiate(config).suite
    kick, liar = suite.interventions.values()
    assert (type(kick).__name__, kick.first, kick.last, kick.scale) == ("KickConsensus", 2, 2, 1.5)
    assert (type(liar).__name__, liar.seed, liar.liars) == ("LiarViews", 4, None)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"interventions": {}}, "at least one intervention"),
        ({"interventions": {"none": Event()}}, "intervention name 'none'"),
        ({"interventions": {"a/b": Event()}}, "intervention name 'a/b'"),
        ({"interventions": {"late": Event(first=7, last=None)}}, "'late' acts from iteration 7, but steps=6"),
        ({"interventions": {"long": Event(first=2, last=9)}}, "'long' acts in the iterations 2 to 9, but steps=6"),
        ({"steps": 0}, "steps=0"),
        ({"batches": 0}, "batches=0"),
    ],
)
def test_what_does_not_fit_is_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        InterventionSuite(**{"interventions": {"kick": Event()}, "steps": K} | arguments)


def test_module_without_history_is_refused():
    with pytest.raises(ValueError, match="BoringModel has not"):
        InterventionSuite({"kick": Event()}, K).setup(Trainer(logger=False, accelerator="cpu"), BoringModel(), "test")

"""A liar sees something else, nobody else does."""

import torch

from lightning_modules.sheaf_admm.maze import MazeTask
from lightning_modules.sheaf_admm.module import SheafADMMModule
from lightning_modules.sheaf_admm.view_interventions import LiarViews

AGENTS, BATCH = 6, 5


def changed(before: torch.Tensor, after: torch.Tensor) -> torch.Tensor:
    return (before != after).flatten(2).any(dim=2)


def liars_of(seed: int, view: torch.Tensor) -> torch.Tensor:
    intervention = LiarViews(seed)
    intervention.on_view(view)
    return intervention.liars


def test_exactly_one_agent_of_each_sample_lies():
    view = torch.arange(AGENTS * BATCH * 4).view(AGENTS, BATCH, 2, 2)
    kept = view.clone()
    intervention = LiarViews(seed=3)
    assert intervention.liars is None
    after = intervention.on_view(view)
    changed_NB = changed(view, after)
    assert (changed_NB.sum(dim=0) == 1).all()
    assert torch.equal(changed_NB.int().argmax(dim=0), intervention.liars)
    assert torch.equal(view, kept), "the input stays as it was"
    for sample, liar in enumerate(intervention.liars.tolist()):
        assert torch.equal(after[liar, sample], view[liar, (sample + 1) % BATCH])
    assert torch.equal(LiarViews(seed=3).on_view(view), after)
    assert set(torch.cat([liars_of(seed, view) for seed in range(20)]).tolist()) == set(range(AGENTS))


def test_samples_that_show_the_same_are_passed_over():
    view = torch.zeros(AGENTS, 4, 1)
    view[:, 3] = 1
    after = LiarViews().on_view(view)
    liars = liars_of(0, view)
    assert after[liars, torch.arange(4)].flatten().tolist() == [1, 1, 1, 0]


def test_single_sample_lies_with_the_view_of_another_agent():
    view = torch.tensor([0.0, 0.0, 0.0, 0.0, 7.0, 0.0])[:, None, None]
    for seed in range(20):
        after, liar = LiarViews(seed).on_view(view), int(liars_of(seed, view))
        assert float(after[liar]) == (0.0 if liar == 4 else 7.0)
        assert int(changed(view, after).sum()) == 1


def test_nothing_that_differs_leaves_all_as_it_is():
    view = torch.ones(AGENTS, BATCH, 3)
    assert torch.equal(LiarViews().on_view(view), view)


def test_a_liar_changes_the_run_of_a_model():
    torch.manual_seed(0)
    module = SheafADMMModule(MazeTask(hidden_dim=8), solver_steps=2, train_horizon=2, eval_horizon=4)
    maze = torch.randint(1, 3, (3, 7, 7))
    batch = {"maze": maze, "solution": maze}
    intervention = LiarViews()
    disturbed, plain = module.admm_history(batch, 4, [intervention]), module.admm_history(batch, 4)
    change = (disturbed.memory[0] - plain.memory[0]).abs()
    assert (change[intervention.liars, torch.arange(3)] > 0).all()
    assert disturbed.memory.shape == (4, 9, 3)

import pytest
import torch

from lightning_modules.sheaf_admm.metrics import CellAccuracy, ExactSolve, IterationsToSolve

targets = torch.tensor([[1, 2, 3], [3, 2, 1], [2, 1, 3], [1, 1, 1]])
one_wrong = targets.clone()
one_wrong[1, 2] = 2


def test_perfect_answers_are_all_solved():
    assert ExactSolve()(targets, targets) == 1
    assert CellAccuracy()(targets, targets) == 1


def test_one_wrong_cell_spoils_its_board_only():
    assert ExactSolve()(one_wrong, targets).item() == pytest.approx(3 / 4)
    assert CellAccuracy()(one_wrong, targets).item() == pytest.approx(11 / 12)


def test_accuracy_on_blanks_counts_blanks_only():
    blanks = torch.tensor([[True, False, False], [False, True, True], [False, False, False], [False, False, False]])
    metric = CellAccuracy(blanks_only=True)
    assert metric(one_wrong, targets, blanks).item() == pytest.approx(2 / 3)
    with pytest.raises(ValueError, match="blanks"):
        metric.update(one_wrong, targets)


@pytest.mark.parametrize("metric_class", [ExactSolve, CellAccuracy])
def test_ranks_of_unequal_size_are_summed(metric_class):
    large, small = metric_class(), metric_class()
    large.update(targets[:3], targets[:3])
    small.update(targets[3:] + 1, targets[3:])
    large.merge_state(small)
    assert large.compute().item() == pytest.approx(3 / 4)  # a mean of the two ranks would be 1/2
    assert {reduction.__name__ for reduction in large._reductions.values()} == {"dim_zero_sum"}


def test_iterations_to_solve_by_hand():
    # solved from 2 on; lost again and solved at 5; solved from the start; solved and lost for good
    solved_KB = torch.tensor([[0, 1, 1, 1], [1, 0, 1, 1], [1, 1, 1, 0]]).bool()
    metric = IterationsToSolve()
    metric.update(solved_KB, [0, 2, 5])
    assert metric.compute().item() == pytest.approx((2 + 5 + 0) / 3)
    metric.update(torch.ones(1, 1).bool(), [7])
    assert metric.compute().item() == pytest.approx((2 + 5 + 0 + 7) / 4)


def test_iterations_to_solve_without_a_solution_is_no_number():
    metric = IterationsToSolve()
    metric.update(torch.zeros(2, 3).bool(), [1, 2])
    assert metric.compute().isnan()


@pytest.mark.parametrize("iterations", [[1], [2, 1], [1, 1]])
def test_iterations_must_rise(iterations):
    with pytest.raises(ValueError, match="must rise"):
        IterationsToSolve().update(torch.ones(2, 3).bool(), iterations)

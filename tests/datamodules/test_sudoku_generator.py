from random import Random

import numpy as np
import pytest

from datamodules import sudoku_generator
from datamodules.sudoku_generator import default_givens, generate_splits, random_puzzle
from datamodules.sudoku_rules import SudokuRules
from datamodules.sudoku_solver import SudokuSolver
from datamodules.sudoku_symmetries import class_keys


def count_by_exact_cover(rules: SudokuRules, puzzle: np.ndarray, limit: int = 2) -> int:
    """Count solutions with Knuth's algorithm X: a choice (cell, digit) covers its cell and the digit in three units."""
    choices: dict[tuple[int, int], list[tuple]] = {}
    for cell, given in enumerate(puzzle.ravel()):
        row, column = divmod(cell, rules.side)
        box = row // rules.box_rows * rules.box_rows + column // rules.box_cols
        for digit in [int(given)] if given else range(1, rules.side + 1):
            choices[cell, digit] = [("cell", cell), ("row", row, digit), ("column", column, digit), ("box", box, digit)]
    columns: dict[tuple, set] = {}
    for choice, covered in choices.items():
        for constraint in covered:
            columns.setdefault(constraint, set()).add(choice)
    if len(columns) < 4 * rules.cells:
        return 0

    def count(columns: dict[tuple, set]) -> int:
        if not columns:
            return 1
        found = 0
        for choice in list(min(columns.values(), key=len)):
            removed = set().union(*(columns[constraint] for constraint in choices[choice]))
            found += count({name: rest - removed for name, rest in columns.items() if name not in choices[choice]})
            if found >= limit:
                break
        return found

    return count(columns)


def test_exact_cover_itself():
    rules = SudokuRules(2, 2)
    assert count_by_exact_cover(rules, np.zeros((4, 4), dtype=int), limit=1000) == 288
    assert count_by_exact_cover(rules, np.array([[1, 2, 3, 0], [0, 0, 0, 4], [0] * 4, [0] * 4])) == 0


@pytest.mark.parametrize(
    ("shape", "givens", "size"), [((2, 2), (4, 6), 60), ((2, 3), (10, 14), 40), ((3, 2), (10, 14), 10), ((3, 3), (26, 34), 12)]
)
def test_puzzles_have_one_solution_and_the_givens_asked_for(shape: tuple[int, int], givens: tuple[int, int], size: int):
    rules = SudokuRules(*shape)
    boards = generate_splits(rules, {"train": size}, givens, seed=1)["train"]
    puzzles, solutions = boards[:, 0], boards[:, 1]
    assert boards.shape == (size, 2, rules.side, rules.side)
    assert boards.dtype == np.uint8
    assert rules.is_solved(solutions).all()
    assert ((puzzles == 0) | (puzzles == solutions)).all()
    counts = (puzzles > 0).sum(axis=(1, 2))
    assert givens[0] <= counts.min() < counts.max() <= givens[1]
    assert [count_by_exact_cover(rules, puzzle) for puzzle in puzzles] == [1] * size


@pytest.mark.parametrize(("shape", "givens"), [((2, 2), (4, 6)), ((2, 3), (10, 14))])
def test_splits_are_disjoint_up_to_symmetry(shape: tuple[int, int], givens: tuple[int, int]):
    rules = SudokuRules(*shape)
    splits = generate_splits(rules, {"test": 40, "val": 20, "train": 150}, givens, seed=0)
    assert [len(boards) for boards in splits.values()] == [40, 20, 150]
    puzzles = [key for boards in splits.values() for key in class_keys(rules, boards[:, 0])]
    assert len(set(puzzles)) == 210
    if rules.side > 4:
        solutions = [set(class_keys(rules, boards[:, 1])) for boards in splits.values()]
        assert sum(map(len, solutions)) == len(set.union(*solutions))


def test_a_solution_of_the_test_set_is_kept_out_of_training(monkeypatch: pytest.MonkeyPatch):
    """Every second training candidate is a new puzzle on a test solution."""
    rules = SudokuRules(2, 3)
    solver = SudokuSolver(rules)
    known = random_puzzle(solver, Random(0), (12, 14))
    assert known is not None

    def candidates(rules, givens, stream):
        for number in range(100):
            puzzle, solution = random_puzzle(solver, Random(f"{stream}{number}"), (36, 36)) if number % 2 else known
            if number % 2 == 0:
                puzzle = [digit if Random(f"{stream}{number}{cell}").random() < 0.5 else 0 for cell, digit in enumerate(known[1])]
            pair = np.reshape([puzzle, solution], (1, 2, 6, 6)).astype(np.uint8)
            yield pair[0], class_keys(rules, pair[:, 0])[0], class_keys(rules, pair[:, 1])[0]

    monkeypatch.setattr(sudoku_generator, "_candidates", candidates)
    splits = generate_splits(rules, {"test": 1, "train": 20}, (12, 14), seed=0)
    assert (splits["test"][0, 1].ravel() == known[1]).all()
    assert not (splits["train"][:, 1] == splits["test"][:, 1]).all(axis=(1, 2)).any()


def test_generation_is_a_function_of_the_seed_and_of_earlier_splits():
    rules = SudokuRules(2, 3)
    small = generate_splits(rules, {"test": 5, "train": 10}, (10, 14), seed=3)
    large = generate_splits(rules, {"test": 5, "train": 40}, (10, 14), seed=3)
    other = generate_splits(rules, {"test": 5, "train": 10}, (10, 14), seed=4)
    assert (small["test"] == large["test"]).all()
    assert (small["train"] == large["train"][:10]).all()
    assert (small["train"] != other["train"]).any()


def test_shortage_tells_how_many_were_found():
    with pytest.raises(ValueError, match=r"found only \d+ of the 5000 train puzzles of side 4 with 4 to 4 givens"):
        generate_splits(SudokuRules(2, 2), {"train": 5000}, (4, 4), seed=0, patience=200)
    with pytest.raises(ValueError, match=r"found only 0 of the 1 train puzzles"):
        generate_splits(SudokuRules(2, 2), {"train": 1}, (1, 3), seed=0, patience=50)


@pytest.mark.parametrize("givens", [(0, 4), (5, 4), (4, 16)])
def test_impossible_givens_are_refused(givens: tuple[int, int]):
    with pytest.raises(ValueError, match=r"givens=\(.*16 cells"):
        generate_splits(SudokuRules(2, 2), {"train": 1}, givens, seed=0)


def test_default_givens():
    assert [default_givens(SudokuRules(*shape)) for shape in ((2, 2), (2, 3), (3, 3))] == [(5, 6), (11, 14), (24, 32)]

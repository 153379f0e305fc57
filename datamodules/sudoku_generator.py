"""Random Sudoku puzzles with exactly one solution, in splits that share no solution class."""

import logging
import time
from collections.abc import Iterator
from functools import partial
from itertools import count
from random import Random

import numpy as np

from datamodules.ordered_map import ordered_map
from datamodules.sudoku_rules import SudokuRules
from datamodules.sudoku_solver import SudokuSolver
from datamodules.sudoku_symmetries import class_keys

logger = logging.getLogger(__name__)

GENERATOR_VERSION = 1
"""Part of the cache key; raise it when the puzzles of a seed change."""

CHUNK = 32
PATIENCE = 2_000
SECONDS_BETWEEN_LOGS = 10.0


def default_givens(rules: SudokuRules) -> tuple[int, int]:
    """Return the range from 30 % to 40 % of the cells: 5 to 6 of 16, 11 to 14 of 36, 24 to 32 of 81."""
    return round(0.3 * rules.cells), round(0.4 * rules.cells)


def check_givens(rules: SudokuRules, givens: tuple[int, int]) -> None:
    """Raise a ValueError if ``givens`` is no range of numbers of cells."""
    least, greatest = givens
    if not 1 <= least <= greatest < rules.cells:
        raise ValueError(f"givens=({least}, {greatest}) needs 1 <= least <= greatest < {rules.cells} cells")


def random_puzzle(solver: SudokuSolver, random: Random, givens: tuple[int, int]) -> tuple[list[int], list[int]] | None:
    """Fill a board at random, then blank cells in random order while the solution stays the only one.

    A blanked cell keeps the solution unique exactly when no completion has another digit there.

    Args:
        solver: solver of the board.
        random: source of randomness.
        givens: least and greatest number of givens; the number aimed at is drawn uniformly between them.

    Returns:
        Puzzle and solution, row-major, or None if no more cells can be blanked while there are too many givens.
    """
    solution = solver.random_solution(random)
    puzzle, left, target = list(solution), len(solution), random.randint(*givens)
    for cell in random.sample(range(len(puzzle)), len(puzzle)):
        if left == target:
            break
        puzzle[cell] = 0
        if solver.solvable_without(puzzle, cell, solution[cell]):
            puzzle[cell] = solution[cell]
        else:
            left -= 1
    return (puzzle, solution) if left <= givens[1] else None


def generate_splits(
    rules: SudokuRules, sizes: dict[str, int], givens: tuple[int, int], seed: int, patience: int = PATIENCE
) -> dict[str, np.ndarray]:
    """Generate puzzles for several splits, deterministically in ``seed``.

    No puzzle occurs twice, and no solution occurs in two splits, both up to digit names and the dihedral maps. Boards of side 4
    have only 288 solutions, so their splits share solutions and are disjoint as puzzles only. The splits are drawn in the order of
    ``sizes``; a larger later split keeps the earlier ones, and a larger last split begins with the smaller one.

    Args:
        rules: the board.
        sizes: number of puzzles of each split.
        givens: least and greatest number of givens.
        seed: seed of all puzzles.
        patience: how many fruitless tries in a row end the search.

    Returns:
        For each split puzzles and solutions as uint8, shape ``[size, 2, side, side]``.

    Raises:
        ValueError: if the givens make no sense or too few different puzzles turn up.
    """
    check_givens(rules, givens)
    known_puzzles: set[bytes] = set()
    solutions_elsewhere: set[bytes] = set()
    splits = {}
    for name, size in sizes.items():
        kept: list[np.ndarray] = []
        solutions_here: set[bytes] = set()
        fruitless, last_log = 0, time.monotonic()
        for boards, puzzle_key, solution_key in _candidates(rules, givens, f"{seed}/{name}") if size else ():
            if boards is None or puzzle_key in known_puzzles or solution_key in solutions_elsewhere:
                fruitless += 1
                if fruitless == patience:
                    raise ValueError(_shortage(rules, name, len(kept), size, givens, patience))
                continue
            fruitless = 0
            known_puzzles.add(puzzle_key)
            solutions_here.add(solution_key)
            kept.append(boards)
            if time.monotonic() - last_log > SECONDS_BETWEEN_LOGS:
                last_log = time.monotonic()
                logger.info("generated %d of %d %s Sudoku puzzles", len(kept), size, name)
            if len(kept) == size:
                break
        splits[name] = np.stack(kept) if kept else np.empty((0, 2, rules.side, rules.side), dtype=np.uint8)
        if rules.side > 4:
            solutions_elsewhere |= solutions_here
    return splits


def _shortage(rules: SudokuRules, name: str, found: int, size: int, givens: tuple[int, int], patience: int) -> str:
    return (
        f"found only {found} of the {size} {name} puzzles of side {rules.side} with {givens[0]} to {givens[1]} givens "
        f"that differ in more than digit names, turns and mirrors: {patience} tries in a row gave no new one; "
        "use smaller sizes or a wider `givens`"
    )


def _candidates(rules: SudokuRules, givens: tuple[int, int], stream: str) -> Iterator[tuple[np.ndarray | None, bytes, bytes]]:
    """Yield endless candidates (or None for a failed try) with the names of their puzzle and solution classes."""
    chunks = (range(first, first + CHUNK) for first in count(0, CHUNK))
    for boards, succeeded in ordered_map(partial(_candidate_chunk, rules, givens, stream), chunks):
        puzzle_keys, solution_keys = class_keys(rules, boards[:, 0]), class_keys(rules, boards[:, 1])
        candidates = zip(boards, puzzle_keys, solution_keys, strict=True)
        for success in succeeded:
            yield next(candidates) if success else (None, b"", b"")


def _candidate_chunk(rules: SudokuRules, givens: tuple[int, int], stream: str, numbers: range) -> tuple[np.ndarray, list[bool]]:
    """Try the candidates of these numbers: those that succeeded ``[n, 2, side, side]``, and which did."""
    solver = SudokuSolver(rules)
    pairs = [random_puzzle(solver, Random(f"{stream}/{number}"), givens) for number in numbers]
    boards = np.array([pair for pair in pairs if pair], dtype=np.uint8)
    return boards.reshape(-1, 2, rules.side, rules.side), [pair is not None for pair in pairs]

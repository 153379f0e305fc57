"""An exhaustive Sudoku solver on bitboards.

The state is one integer per digit whose bit ``c`` says that the digit may still stand in cell ``c``, so that a question about all
cells at once costs one integer operation and a branch costs one list copy.
"""

from collections.abc import Sequence
from random import Random

import numpy as np

from datamodules.sudoku_rules import SudokuRules


class SudokuSolver:
    """Finds all or some completions of a board.

    Naked and hidden singles are filled in until nothing changes, then the cell with the fewest candidates is tried with each.
    """

    def __init__(self, rules: SudokuRules) -> None:
        self.rules = rules
        self._everywhere = (1 << rules.cells) - 1
        self._units = [sum(1 << int(cell) for cell in unit) for unit in rules.units]
        self._peers = [0] * rules.cells
        for unit, mask in zip(rules.units, self._units, strict=True):
            for cell in unit:
                self._peers[cell] |= mask & ~(1 << int(cell))

    def solutions(self, board: Sequence[int], limit: int = 2) -> list[list[int]]:
        """Return up to ``limit`` completions of a row-major board with 0 for blanks."""
        found: list[list[int]] = []
        self._search(self._candidates(board), 0, limit, found, None)
        return [self._digits(candidates) for candidates in found]

    def random_solution(self, random: Random) -> list[int]:
        """Fill the empty board, trying cells and digits in random order."""
        found: list[list[int]] = []
        self._search([self._everywhere] * self.rules.side, 0, 1, found, random)
        return self._digits(found[0])

    def solvable_without(self, board: Sequence[int], cell: int, digit: int) -> bool:
        """Tell whether the board can be completed with anything but ``digit`` in the blank ``cell``."""
        candidates = self._candidates(board)
        candidates[digit - 1] &= ~(1 << cell)
        found: list[list[int]] = []
        self._search(candidates, 0, 1, found, None)
        return bool(found)

    def _candidates(self, board: Sequence[int]) -> list[int]:
        """Bitboards of the cells open to each digit, after the givens have ruled out their peers."""
        given, ruled_out = [0] * self.rules.side, [0] * self.rules.side
        for cell, digit in enumerate(board):
            if digit:
                given[digit - 1] |= 1 << cell
                ruled_out[digit - 1] |= self._peers[cell]
        blank = self._everywhere & ~sum(given)
        return [(blank | own) & ~out for own, out in zip(given, ruled_out, strict=True)]

    def _digits(self, candidates: list[int]) -> list[int]:
        board = [0] * self.rules.cells
        for digit, cells in enumerate(candidates, start=1):
            for cell in _bits(cells):
                board[cell] = digit
        return board

    def _propagate(self, candidates: list[int], settled: int) -> int:
        """Fill in singles, changing ``candidates``; return the settled cells, -1 on a contradiction."""
        while True:
            once = twice = 0
            for cells in candidates:
                twice |= once & cells
                once |= cells
            if once != self._everywhere:
                return -1
            singles = self._everywhere & ~twice & ~settled
            if singles:
                settled |= singles
                for digit, cells in enumerate(candidates):
                    for cell in _bits(cells & singles):
                        cells &= ~self._peers[cell]
                    candidates[digit] = cells
            elif settled == self._everywhere:
                return settled
            else:
                progress = self._find_hidden_singles(candidates, settled)
                if progress != 1:
                    return settled if progress == 0 else -1

    def _find_hidden_singles(self, candidates: list[int], settled: int) -> int:
        """Clear the other candidates of cells that alone can hold a digit of a unit.

        Return 1 if there was one, 0 if none, -1 if a unit has no place for a digit.
        """
        progress = 0
        for digit, cells in enumerate(candidates):
            for unit in self._units:
                places = cells & unit
                if not places & (places - 1):
                    if not places:
                        return -1
                    if not places & settled:
                        progress = 1
                        for other in range(len(candidates)):
                            if other != digit:
                                candidates[other] &= ~places
        return progress

    def _fewest_candidates(self, candidates: list[int], settled: int, random: Random | None) -> int:
        """Bit of an open cell with the fewest candidates; the first one or a random one."""
        at_least = [self._everywhere] + [0] * (len(candidates) + 1)
        for cells in candidates:
            for count in range(len(candidates), 0, -1):
                at_least[count] |= at_least[count - 1] & cells
        count = 2
        while not (exactly := at_least[count] & ~at_least[count + 1] & ~settled):
            count += 1
        return 1 << random.choice(_bits(exactly)) if random else exactly & -exactly

    def _search(self, candidates: list[int], settled: int, limit: int, found: list[list[int]], random: Random | None) -> None:
        """Append up to ``limit`` completions to ``found``."""
        settled = self._propagate(candidates, settled)
        if settled < 0:
            return
        if settled == self._everywhere:
            found.append(candidates)
            return
        cell = self._fewest_candidates(candidates, settled, random)
        digits = [digit for digit, cells in enumerate(candidates) if cells & cell]
        if random:
            random.shuffle(digits)
        for digit in digits:
            branch = [cells & ~cell for cells in candidates]
            branch[digit] |= cell
            self._search(branch, settled, limit, found, random)
            if len(found) >= limit:
                return


def solve_boards(rules: SudokuRules, puzzles: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Solve each puzzle and look for a second solution.

    Args:
        rules: the board.
        puzzles: digits with 0 for blanks, shape ``[puzzles, side, side]``.

    Returns:
        First solutions as uint8, zeros where there is none, shape ``[puzzles, side, side]``; the number of solutions 0, 1 or 2
        (two or more), shape ``[puzzles]``.
    """
    solver = SudokuSolver(rules)
    solutions = np.zeros(puzzles.shape, dtype=np.uint8)
    counts = np.zeros(len(puzzles), dtype=np.int64)
    for row, puzzle in enumerate(puzzles):
        found = solver.solutions(puzzle.ravel().tolist())
        counts[row] = len(found)
        if found:
            solutions[row] = np.reshape(found[0], solutions[row].shape)
    return solutions, counts


def _bits(cells: int) -> list[int]:
    """Cell numbers of the set bits."""
    numbers = []
    while cells:
        lowest = cells & -cells
        numbers.append(lowest.bit_length() - 1)
        cells ^= lowest
    return numbers

"""Random perfect mazes with one labelled path, in splits that share no maze."""

import logging
import math
import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from itertools import count
from random import Random

import numpy as np

from datamodules.dihedral import dihedral_maps
from datamodules.ordered_map import ordered_map

logger = logging.getLogger(__name__)

GENERATOR_VERSION = 1
"""Part of the cache key; raise it when the mazes of a seed change."""

WALL, OPEN, START, GOAL, PATH = 1, 2, 3, 4, 5
"""Tokens of a pixel; 0 is unused and ``PATH`` occurs in solutions only."""

SUITES = {
    "1.5x": (1.5, 1.5, 42),
    "2x": (2.0, 2.0, 36),
    "2x_long": (2.0, 2.0, 54),
    "2xW": (1.0, 2.0, 35),
    "4xW": (1.0, 4.0, 69),
    "4x": (4.0, 4.0, 72),
}
"""Larger test mazes: factors of height and width in cells, and least moves where the base is 19 x 19 with at least 18 moves."""

PAIRS_PER_MAZE = 50
MAZES_PER_CANDIDATE = 200
CHUNK = 32
PATIENCE = 2_000
SECONDS_BETWEEN_LOGS = 10.0


@dataclass(frozen=True)
class MazeRules:
    """Which mazes are drawn.

    Attributes:
        height: rows of pixels, odd: cells lie on odd rows and columns, walls or passages between them.
        width: columns of pixels, odd.
        min_path_length: least number of moves from start to goal.

    Raises:
        ValueError: if a size is even or less than 5, or no move is asked for.
    """

    height: int
    width: int
    min_path_length: int

    def __post_init__(self) -> None:
        for name in ("height", "width"):
            size = getattr(self, name)
            if size < 5 or size % 2 == 0:
                allowed = f"{size - 1} or {size + 1}" if size > 5 else "5 or more"
                raise ValueError(f"{name}={size} must be odd and at least 5, cells lie on odd pixels between walls: use {allowed}")
        if self.min_path_length < 1:
            raise ValueError(f"min_path_length={self.min_path_length} must be at least 1, start and goal are different pixels")

    def suite(self, name: str) -> "MazeRules":
        """Return the rules of a suite of ``SUITES``, scaled to this base.

        The number of cells along a side is multiplied and rounded (halves up), so ``2x`` has ``2 * height - 1`` rows; the least
        number of moves grows as in the paper, rounded down. A base of 19 x 19 with 18 moves gives the paper's six suites: 29 x 29
        with 42 moves, 37 x 37 with 36 and with 54, 19 x 37 with 35, 19 x 73 with 69, 73 x 73 with 72. The scaling of other bases
        is ours.
        """
        taller, wider, moves = SUITES[name]
        height, width = (
            2 * math.floor(factor * (size // 2) + 0.5) + 1 for size, factor in ((self.height, taller), (self.width, wider))
        )
        return MazeRules(height, width, max(1, moves * self.min_path_length // 18))


def carve(height: int, width: int, random: Random) -> dict[int, int]:
    """Carve a perfect maze by randomised depth-first search over the cells at odd rows and columns.

    Returns:
        The tree of the open pixels: row-major number of every pixel and of its parent; the root is its own parent.
    """
    closed = bytearray(b"\1" * ((height + 1) * width))  # one row more, which is where steps over the upper and lower border lead
    for row in range(1, height, 2):
        closed[row * width + 1 : (row + 1) * width : 2] = bytes(width // 2)
    root = random.randrange(1, height, 2) * width + random.randrange(1, width, 2)
    parents, trail, steps = {root: root}, [root], (-2, 2, -2 * width, 2 * width)
    closed[root] = 1
    while trail:
        cell = trail[-1]
        free = [step for step in steps if not closed[cell + step]]
        if not free:
            trail.pop()
            continue
        step = free[int(random.random() * len(free))]
        passage, neighbour = cell + step // 2, cell + step
        parents[passage], parents[neighbour] = cell, passage
        closed[neighbour] = 1
        trail.append(neighbour)
    return parents


def path_between(parents: dict[int, int], start: int, goal: int) -> list[int]:
    """Return the only path of the tree, both ends included: the way up from ``start`` until it meets the one from ``goal``."""
    ascent = [start]
    while parents[ascent[-1]] != ascent[-1]:
        ascent.append(parents[ascent[-1]])
    position = {pixel: number for number, pixel in enumerate(ascent)}
    descent = []
    while goal not in position:
        descent.append(goal)
        goal = parents[goal]
    return ascent[: position[goal] + 1] + descent[::-1]


def random_maze(rules: MazeRules, random: Random, pairs: int = PAIRS_PER_MAZE, mazes: int = MAZES_PER_CANDIDATE) -> np.ndarray:
    """Draw a maze with start and goal uniform over all pairs of open pixels that are far enough apart.

    Args:
        rules: size and least number of moves.
        random: source of randomness.
        pairs: how many starts and goals are tried on a maze before the next one is carved.
        mazes: how many mazes are tried.

    Returns:
        Maze and solution as uint8, shape ``[2, height, width]``.

    Raises:
        ValueError: if no pair was far enough apart; tells the longest path seen.
    """
    longest = 0
    for _ in range(mazes):
        parents = carve(rules.height, rules.width, random)
        open_pixels = list(parents)
        for _ in range(pairs):
            path = path_between(parents, *random.sample(open_pixels, 2))
            longest = max(longest, len(path) - 1)
            if len(path) > rules.min_path_length:
                return _drawn(rules, open_pixels, path)
    raise ValueError(
        f"min_path_length={rules.min_path_length} is out of reach in mazes of {rules.height}x{rules.width} pixels: "
        f"the longest of {mazes * pairs} paths in {mazes} mazes has {longest} moves; use a smaller min_path_length or larger mazes"
    )


def _drawn(rules: MazeRules, open_pixels: list[int], path: list[int]) -> np.ndarray:
    """Write the tokens of maze and solution, ``[2, height, width]``."""
    drawn = np.full((2, rules.height * rules.width), WALL, dtype=np.uint8)
    drawn[:, open_pixels] = OPEN
    drawn[1, path] = PATH
    drawn[:, path[0]], drawn[:, path[-1]] = START, GOAL
    return drawn.reshape(2, rules.height, rules.width)


def are_solved(boards: np.ndarray) -> np.ndarray:
    """Tell which solutions show a path that never branches from the start to the goal of their maze.

    A pixel of the path has two neighbours on it, start and goal have one each. Without loops in the maze, this is its only path.

    Args:
        boards: mazes and solutions, shape ``[n, 2, height, width]``.
    """
    mazes, solutions = boards[:, 0], boards[:, 1]
    on_path = np.pad(solutions >= START, ((0, 0), (1, 1), (1, 1))).astype(np.int8)
    neighbours = on_path[:, :-2, 1:-1] + on_path[:, 2:, 1:-1] + on_path[:, 1:-1, :-2] + on_path[:, 1:-1, 2:]
    wanted = np.select([(solutions == START) | (solutions == GOAL), solutions == PATH], [1, 2], neighbours)
    known = (mazes >= WALL) & (mazes <= GOAL) & np.where(solutions == PATH, mazes == OPEN, mazes == solutions)
    one_each = ((mazes == START).sum(axis=(1, 2)) == 1) & ((mazes == GOAL).sum(axis=(1, 2)) == 1)
    return (known & (neighbours == wanted)).all(axis=(1, 2)) & one_each


def maze_keys(mazes: np.ndarray) -> list[bytes]:
    """Return a hashable name of each maze ``[n, height, width]``; equal exactly if a turn or mirror makes the mazes equal."""
    maps = dihedral_maps(*mazes.shape[1:])
    return [min(image.tobytes() for image in maze.ravel()[maps]) for maze in mazes]


def generate_splits(rules: MazeRules, sizes: dict[str, int], seed: int, patience: int = PATIENCE) -> dict[str, np.ndarray]:
    """Generate mazes for several splits, deterministically in ``seed``.

    No maze (walls, start and goal) occurs twice, in one split or two, up to turns and mirrors. Every split has a stream of random
    numbers by its name. The splits are drawn in the order of ``sizes``; a larger later split keeps the earlier ones, and a larger
    last split begins with the smaller one.

    Args:
        rules: size and least number of moves.
        sizes: number of mazes of each split.
        seed: seed of all mazes.
        patience: how many known mazes in a row end the search.

    Returns:
        For each split mazes and solutions as uint8, shape ``[size, 2, height, width]``.

    Raises:
        ValueError: if too few different mazes turn up, or the least number of moves is out of reach.
    """
    known: set[bytes] = set()
    splits = {}
    for name, size in sizes.items():
        kept: list[np.ndarray] = []
        fruitless, last_log = 0, time.monotonic()
        for board, key in _candidates(rules, f"{seed}/{name}") if size else ():
            if key in known:
                fruitless += 1
                if fruitless == patience:
                    raise ValueError(
                        f"found only {len(kept)} of the {size} {name} mazes of {rules.height}x{rules.width} pixels with at least "
                        f"{rules.min_path_length} moves that differ in more than turns and mirrors: {patience} tries in a row gave "
                        "no new one; use fewer or larger mazes or a smaller min_path_length"
                    )
                continue
            fruitless = 0
            known.add(key)
            kept.append(board)
            if time.monotonic() - last_log > SECONDS_BETWEEN_LOGS:
                last_log = time.monotonic()
                logger.info("generated %d of %d %s mazes", len(kept), size, name)
            if len(kept) == size:
                break
        splits[name] = np.stack(kept) if kept else np.empty((0, 2, rules.height, rules.width), dtype=np.uint8)
    return splits


def _candidates(rules: MazeRules, stream: str) -> Iterator[tuple[np.ndarray, bytes]]:
    """Yield endless mazes with the names of their classes."""
    chunks = (range(first, first + CHUNK) for first in count(0, CHUNK))
    for boards in ordered_map(partial(_candidate_chunk, rules, stream), chunks):
        yield from zip(boards, maze_keys(boards[:, 0]), strict=True)


def _candidate_chunk(rules: MazeRules, stream: str, numbers: range) -> np.ndarray:
    """Draw the mazes of these numbers, ``[n, 2, height, width]``."""
    return np.stack([random_maze(rules, Random(f"{stream}/{number}")) for number in numbers])

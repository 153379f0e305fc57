from random import Random

import networkx
import numpy as np
import pytest

from datamodules import maze_generator
from datamodules.dihedral import dihedral_maps
from datamodules.maze_generator import (
    GOAL,
    OPEN,
    PATH,
    START,
    SUITES,
    WALL,
    MazeRules,
    are_solved,
    carve,
    generate_splits,
    maze_keys,
    path_between,
    random_maze,
)

RULES = MazeRules(11, 15, 8)
BOARDS = generate_splits(RULES, {"train": 40}, seed=1)["train"]
SQUARE = generate_splits(MazeRules(9, 9, 5), {"train": 20}, seed=1)["train"]

HAND_MAZE = np.array([[1, 1, 1, 1, 1], [1, 3, 2, 2, 1], [1, 2, 1, 2, 1], [1, 2, 1, 4, 1], [1, 1, 1, 1, 1]], dtype=np.uint8)
HAND_SOLUTION = np.array([[1, 1, 1, 1, 1], [1, 3, 5, 5, 1], [1, 2, 1, 5, 1], [1, 2, 1, 4, 1], [1, 1, 1, 1, 1]], dtype=np.uint8)


def pixel_graph(maze: np.ndarray) -> networkx.Graph:
    """The open pixels and which of them touch along a side."""
    graph = networkx.grid_2d_graph(*maze.shape)
    graph.remove_nodes_from([tuple(pixel) for pixel in np.argwhere(maze == WALL)])
    return graph


def only(board: np.ndarray, token: int) -> tuple[int, int]:
    ((row, column),) = np.argwhere(board == token)
    return row, column


@pytest.mark.parametrize("boards", [BOARDS, SQUARE], ids=["wide", "square"])
def test_mazes_are_perfect_and_labelled_with_their_shortest_path(boards: np.ndarray):
    minimum = {15: 8, 9: 5}[boards.shape[-1]]
    lengths = []
    for maze, solution in boards:
        assert set(np.unique(maze)) == {WALL, OPEN, START, GOAL}
        assert (maze[[0, -1]] == WALL).all()
        assert (maze[:, [0, -1]] == WALL).all()
        assert (maze[1::2, 1::2] != WALL).all(), "cells are open"
        assert (maze[::2, ::2] == WALL).all(), "corners between cells are walls"
        graph = pixel_graph(maze)
        assert networkx.is_tree(graph)
        assert len(graph) == 2 * (maze[1::2, 1::2].size) - 1
        path = networkx.shortest_path(graph, only(maze, START), only(maze, GOAL))
        labelled = {(row, column) for row, column in np.argwhere(solution == PATH)}
        assert labelled == set(path[1:-1])
        assert len(labelled) == len(path) - 2
        assert (np.where(solution == PATH, OPEN, solution) == maze).all()
        lengths.append(len(path) - 1)
    assert min(lengths) >= minimum
    assert len(set(lengths)) > 5


def test_path_by_hand():
    #     0
    #     |
    #     1 - 4      the tree hangs from 0
    #     |
    #     2 - 3
    parents = {0: 0, 1: 0, 2: 1, 3: 2, 4: 1}
    assert path_between(parents, 3, 4) == [3, 2, 1, 4]
    assert path_between(parents, 4, 3) == [4, 1, 2, 3]
    assert path_between(parents, 0, 3) == [0, 1, 2, 3]
    assert path_between(parents, 3, 1) == [3, 2, 1]
    assert path_between(parents, 2, 2) == [2]


def test_every_tree_of_four_cells_is_carved_equally_often():
    passages = {(1, 2), (2, 1), (2, 3), (3, 2)}
    missing = [passages - {divmod(pixel, 5) for pixel in carve(5, 5, Random(seed))} for seed in range(800)]
    counts = [missing.count({passage}) for passage in passages]
    assert sum(counts) == 800
    assert min(counts) > 150  # 200 expected, standard deviation 12


def test_search_goes_deep_before_it_goes_back():
    """Only a depth-first tree has an ancestor and its descendant on every pair of neighbouring cells."""
    parents = carve(15, 11, Random(0))
    cells = [(row, column) for row in range(1, 15, 2) for column in range(1, 11, 2)]
    root = next(pixel for pixel, parent in parents.items() if pixel == parent)
    up_to_root = {cell: set(path_between(parents, cell[0] * 11 + cell[1], root)) for cell in cells}
    for row, column in cells:
        for other in ((row + 2, column), (row, column + 2)):
            if other in up_to_root:
                here, there = up_to_root[row, column], up_to_root[other]
                assert here < there or there < here


def test_start_and_goal_are_uniform_over_cells_and_passages():
    rules = MazeRules(9, 9, 1)
    mazes = np.stack([random_maze(rules, Random(number))[0] for number in range(1000)])
    for token in (START, GOAL):
        _, rows, columns = np.nonzero(mazes == token)
        on_cell = (rows % 2 == 1) & (columns % 2 == 1)
        assert on_cell.mean() == pytest.approx(16 / 31, abs=0.06)  # 16 cells and 15 passages, standard deviation 0.016
        assert len(set(zip(rows[on_cell], columns[on_cell], strict=True))) == 16
        assert len(set(zip(rows[~on_cell], columns[~on_cell], strict=True))) == 24


def test_a_maze_that_offers_no_long_path_is_replaced():
    """Three cells of four can be apart by 6 moves at most, and only from end to end."""
    for seed in range(10):
        assert (random_maze(MazeRules(5, 5, 6), Random(seed), pairs=5)[1] == PATH).sum() == 5


def test_unreachable_length_tells_the_longest_path():
    with pytest.raises(ValueError, match=r"min_path_length=7 .* 5x5 pixels: the longest of 1000 paths in 50 mazes has 6 moves"):
        random_maze(MazeRules(5, 5, 7), Random(0), pairs=20, mazes=50)


def test_dihedral_image_is_a_maze_with_the_transformed_path():
    for boards, count in ((SQUARE, 8), (BOARDS, 4)):
        maps = dihedral_maps(*boards.shape[2:])
        assert len({tuple(sources) for sources in maps}) == len(maps) == count
        for sources in maps:
            maze, solution = boards[0].reshape(2, -1)[:, sources].reshape(boards[0].shape)
            graph = pixel_graph(maze)
            assert networkx.is_tree(graph)
            path = networkx.shortest_path(graph, only(maze, START), only(maze, GOAL))
            assert {(row, column) for row, column in np.argwhere(solution == PATH)} == set(path[1:-1])


def test_keys_are_equal_exactly_under_turns_and_mirrors():
    maze = SQUARE[0, 0]
    images = [np.rot90(image, turns) for image in (maze, maze.T) for turns in range(4)]
    assert len({np.ascontiguousarray(image).tobytes() for image in images}) == 8
    assert len(set(maze_keys(np.stack(images)))) == 1
    wide = BOARDS[0, 0]
    assert len(set(maze_keys(np.stack([wide, wide[::-1], wide[:, ::-1], np.rot90(wide, 2)])))) == 1
    swapped = maze.copy()
    swapped[maze == START], swapped[maze == GOAL] = GOAL, START
    assert maze_keys(swapped[None]) != maze_keys(maze[None])


def test_splits_are_disjoint_up_to_symmetry():
    rules = MazeRules(7, 7, 4)
    splits = generate_splits(rules, {"test": 150, "val": 100, "train": 500}, seed=0)
    keys = [key for boards in splits.values() for key in maze_keys(boards[:, 0])]
    assert len(set(keys)) == 750
    unfiltered = np.stack([random_maze(rules, Random(f"0/{name}/{number}"))[0] for name in splits for number in range(250)])
    assert len(set(maze_keys(unfiltered))) < 750, "without the check some would occur twice"


def test_a_turned_test_maze_is_kept_out_of_training(monkeypatch: pytest.MonkeyPatch):
    turned = np.stack([np.rot90(board, axes=(1, 2)) for board in SQUARE])

    def candidates(rules, stream):
        boards = SQUARE[:3] if stream.endswith("test") else turned
        return zip(boards, maze_keys(boards[:, 0]), strict=True)

    monkeypatch.setattr(maze_generator, "_candidates", candidates)
    splits = generate_splits(MazeRules(9, 9, 5), {"test": 3, "train": 10}, seed=0)
    assert (splits["train"] == turned[3:13]).all()


def test_generation_is_a_function_of_the_seed_and_of_earlier_splits():
    rules = MazeRules(7, 9, 4)
    small = generate_splits(rules, {"test": 5, "train": 10}, seed=3)
    large = generate_splits(rules, {"test": 5, "train": 80}, seed=3)
    other = generate_splits(rules, {"test": 5, "train": 10}, seed=4)
    assert (small["test"] == large["test"]).all()
    assert (small["train"] == large["train"][:10]).all()
    assert (small["train"] != other["train"]).any()
    assert (small["train"] == generate_splits(rules, {"train": 10}, seed=3)["train"]).all(), "each split has its own stream"
    assert generate_splits(rules, {"val": 0}, seed=3)["val"].shape == (0, 2, 7, 9)


def test_shortage_tells_how_many_were_found():
    # 4 trees of 7 pixels; the 2 pairs 6 moves apart of one are, turned and mirrored, those of all: 1 class of 8 mazes
    with pytest.raises(ValueError, match="found only 1 of the 3 train mazes of 5x5 pixels with at least 6 moves"):
        generate_splits(MazeRules(5, 5, 6), {"train": 3}, seed=0, patience=60)


def test_suites_of_the_paper():
    base = MazeRules(19, 19, 18)
    assert {name: base.suite(name) for name in SUITES} == {
        "1.5x": MazeRules(29, 29, 42),
        "2x": MazeRules(37, 37, 36),
        "2x_long": MazeRules(37, 37, 54),
        "2xW": MazeRules(19, 37, 35),
        "4xW": MazeRules(19, 73, 69),
        "4x": MazeRules(73, 73, 72),
    }


def test_suites_of_other_bases():
    base = MazeRules(7, 11, 4)  # 3 x 5 cells
    assert {name: base.suite(name) for name in SUITES} == {
        "1.5x": MazeRules(11, 17, 9),
        "2x": MazeRules(13, 21, 8),
        "2x_long": MazeRules(13, 21, 12),
        "2xW": MazeRules(7, 21, 7),
        "4xW": MazeRules(7, 41, 15),
        "4x": MazeRules(25, 41, 16),
    }


@pytest.mark.parametrize(
    ("rules", "message"),
    [
        ((20, 19, 18), "height=20 must be odd and at least 5.* use 19 or 21"),
        ((19, 6, 18), "width=6 must be odd.* use 5 or 7"),
        ((3, 19, 18), "height=3 .* use 5 or more"),
        ((19, 4, 18), "width=4 .* use 5 or more"),
        ((19, 19, 0), "min_path_length=0 must be at least 1"),
    ],
)
def test_impossible_rules_are_refused(rules: tuple[int, int, int], message: str):
    with pytest.raises(ValueError, match=message):
        MazeRules(*rules)


def test_solutions_are_recognised():
    assert are_solved(BOARDS).all()
    assert are_solved(np.stack([[HAND_MAZE, HAND_SOLUTION]])).all()

    def changed(which: int, row: int, column: int, token: int) -> bool:
        board = np.stack([HAND_MAZE, HAND_SOLUTION])
        board[which, row, column] = token
        return bool(are_solved(board[None])[0])

    assert not changed(1, 1, 2, OPEN), "a gap"
    assert not changed(1, 2, 1, PATH), "a branch"
    assert not changed(1, 2, 2, PATH), "a path through a wall"
    assert not changed(1, 0, 0, OPEN), "another maze"
    assert not changed(1, 1, 1, PATH), "a start that was painted over"
    assert not changed(0, 1, 1, OPEN), "no start"
    assert not changed(0, 0, 0, 0), "an unknown token"
    second = np.stack([HAND_MAZE, HAND_SOLUTION])
    second[:, 3, 1] = GOAL
    assert not are_solved(second[None])[0], "two goals"

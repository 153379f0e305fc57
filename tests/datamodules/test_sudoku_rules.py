import numpy as np
import pytest

from datamodules.sudoku_rules import SudokuRules
from datamodules.sudoku_solver import SudokuSolver, solve_boards
from datamodules.sudoku_symmetries import SudokuAugmentation, box_maps, canonical_boards, class_keys

SHAPES = [(2, 2), (2, 3), (3, 2), (3, 3), (2, 4)]
PUZZLE = "530070000600195000098000060800060003400803001700020006060000280000419005000080079"
SOLUTION = "534678912672195348198342567859761423426853791713924856961537284287419635345286179"


def board(text: str) -> np.ndarray:
    side = round(len(text) ** 0.5)
    return np.array(list(map(int, text)), dtype=np.uint8).reshape(1, side, side)


def solved(rules: SudokuRules, count: int = 1) -> np.ndarray:
    """A known pattern under random augmentation."""
    rows, columns = np.indices((rules.side, rules.side))
    pattern = (rules.box_cols * (rows % rules.box_rows) + rows // rules.box_rows + columns) % rules.side + 1
    boards = np.broadcast_to(pattern.reshape(1, 1, -1), (count, 1, rules.cells))
    maps = SudokuAugmentation(rules, "full").draw(np.random.default_rng(0), count)
    return maps(boards).reshape(count, rules.side, rules.side)


@pytest.fixture(scope="module")
def all_small_boards() -> np.ndarray:
    return np.reshape(SudokuSolver(SudokuRules(2, 2)).solutions([0] * 16, limit=1000), (-1, 4, 4))


def test_units_by_hand():
    units = SudokuRules(2, 3).units
    assert units.shape == (18, 6)
    assert units[1].tolist() == [6, 7, 8, 9, 10, 11]
    assert units[7].tolist() == [1, 7, 13, 19, 25, 31]
    assert units[13].tolist() == [3, 4, 5, 9, 10, 11]
    assert units[14].tolist() == [12, 13, 14, 18, 19, 20]


@pytest.mark.parametrize("shape", SHAPES)
def test_clashes_agree_with_counting(shape: tuple[int, int]):
    rules = SudokuRules(*shape)
    random = np.random.default_rng(0)
    boards = solved(rules, 300)
    assert rules.is_solved(boards).all()
    boards = np.where(random.random(boards.shape) < 0.8, 0, boards)
    for changed in range(150):
        boards[changed, random.integers(rules.side), random.integers(rules.side)] = random.integers(1, rules.side + 1)
    flat = boards.reshape(300, -1)
    counted = [any((np.bincount(row[unit], minlength=2)[1:] > 1).any() for unit in rules.units) for row in flat]
    assert 0 < sum(counted) < 150
    assert rules.clashes(boards).tolist() == counted
    assert not rules.is_solved(boards).any()


def test_shapes_without_a_board_are_refused():
    for shape in ((0, 3), (1, 2), (6, 6)):
        with pytest.raises(ValueError, match=f"box_rows={shape[0]}, box_cols={shape[1]}"):
            SudokuRules(*shape)


def test_solver_on_a_published_puzzle():
    rules = SudokuRules(3, 3)
    solutions, counts = solve_boards(rules, board(PUZZLE))
    assert (solutions == board(SOLUTION)).all()
    assert counts.tolist() == [1]


def test_solver_finds_all_288_small_boards(all_small_boards: np.ndarray):
    assert len({tuple(row.ravel()) for row in all_small_boards}) == len(all_small_boards) == 288
    assert SudokuRules(2, 2).is_solved(all_small_boards).all()


def test_solver_counts_none_one_and_several():
    rules = SudokuRules(2, 2)
    puzzles = np.concatenate([board("1230" + "0004" + "0" * 8), board("1234" + "3412" + "2143" + "4320"), board("0" * 16)])
    solutions, counts = solve_boards(rules, puzzles)
    assert counts.tolist() == [0, 1, 2]
    assert (solutions[0] == 0).all()
    assert rules.is_solved(solutions[1:]).all()


@pytest.mark.parametrize("shape", SHAPES)
def test_dihedral_maps_form_a_group_that_keeps_boxes(shape: tuple[int, int]):
    rules = SudokuRules(*shape)
    maps = box_maps(rules)
    names = {tuple(one) for one in maps}
    assert len(names) == len(maps) == (8 if shape[0] == shape[1] else 4)
    assert {tuple(one[other]) for one in maps for other in maps} == names
    boxes = {frozenset(unit) for unit in rules.units[2 * rules.side :]}
    assert all({frozenset(one[unit]) for unit in rules.units[2 * rules.side :]} == boxes for one in maps)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("kind", SudokuAugmentation.kinds)
def test_augmented_boards_are_valid(shape: tuple[int, int], kind: str):
    rules = SudokuRules(*shape)
    solution = solved(rules)
    puzzle = np.where(np.random.default_rng(1).random(solution.shape) < 0.5, 0, solution)
    pairs = np.broadcast_to(np.stack([puzzle, solution], axis=1).reshape(1, 2, -1), (64, 2, rules.cells))
    maps = SudokuAugmentation(rules, kind).draw(np.random.default_rng(2), 64)
    puzzles, solutions = maps(pairs).reshape(64, 2, rules.side, rules.side).swapaxes(0, 1)
    assert rules.is_solved(solutions).all()
    assert ((puzzles == 0) | (puzzles == solutions)).all()
    assert ((puzzles == 0).sum((1, 2)) == (puzzle == 0).sum()).all()
    different = len({one.tobytes() for one in solutions})
    expected = {"none": (1, 1), "dihedral": (3, 8), "dihedral8": (2, 8), "digits": (20, 64), "full": (40, 64)}[kind]
    assert expected[0] <= different <= expected[1]


def test_full_group_reaches_every_small_board(all_small_boards: np.ndarray):
    # the 288 boards fall into two classes under the full group, of 96 and 192 boards
    reached = set()
    sizes = set()
    for start in all_small_boards[[0, 1, 2, 3, 4, 5]]:
        maps = SudokuAugmentation(SudokuRules(2, 2), "full").draw(np.random.default_rng(0), 6000)
        images = {image.tobytes() for image in maps(np.broadcast_to(start.reshape(1, 1, 16), (6000, 1, 16)))}
        sizes.add(len(images))
        reached |= images
    assert sizes == {96, 192}
    assert len(reached) == 288


def test_unknown_augmentation_is_refused():
    with pytest.raises(ValueError, match="'rotate' is unknown, use one of none, digits"):
        SudokuAugmentation(SudokuRules(2, 2), "rotate")


@pytest.mark.parametrize("shape", SHAPES)
def test_canonical_form_does_not_change_under_its_maps(shape: tuple[int, int]):
    rules = SudokuRules(*shape)
    solutions = solved(rules, 40)
    puzzles = np.where(np.random.default_rng(3).random(solutions.shape) < 0.7, 0, solutions)
    for boards in (solutions, puzzles):
        expected = canonical_boards(rules, boards)
        for kind in ("digits", "dihedral"):
            maps = SudokuAugmentation(rules, kind).draw(np.random.default_rng(4), 40)
            images = maps(boards.reshape(40, 1, -1)).reshape(boards.shape)
            assert (images != boards).any()
            assert (canonical_boards(rules, images) == expected).all()
        shape_of_board = (40, rules.side, rules.side)
        assert (canonical_boards(rules, expected.reshape(shape_of_board)) == expected).all()


def test_canonical_form_by_hand():
    # a corner is turned into the last cell; of two digits in a row the first seen becomes 1
    puzzles = np.concatenate([board("0003" + "0" * 12), board("3400" + "0" * 12)])
    assert canonical_boards(SudokuRules(2, 2), puzzles).tolist() == [[0] * 15 + [1], [0] * 14 + [1, 2]]


def test_canonical_form_tells_all_classes_apart(all_small_boards: np.ndarray):
    """Orbits found by following every map from board to board agree with the keys."""
    rules = SudokuRules(2, 2)
    keys = class_keys(rules, all_small_boards)
    maps = box_maps(rules)
    renames = [np.array([0, 2, 1, 3, 4]), np.array([0, 2, 3, 4, 1])]
    unvisited = {tuple(one.ravel()): key for one, key in zip(all_small_boards, keys, strict=True)}
    orbits = []
    while unvisited:
        start, key = unvisited.popitem()
        orbit_keys, frontier = {key}, [start]
        while frontier:
            current = np.array(frontier.pop())
            for image in [current[one] for one in maps] + [rename[current] for rename in renames]:
                if (name := tuple(image)) in unvisited:
                    orbit_keys.add(unvisited.pop(name))
                    frontier.append(name)
        orbits.append(orbit_keys)
    assert all(len(orbit) == 1 for orbit in orbits)
    assert len(set().union(*orbits)) == len(orbits) == len(set(keys))

import sys
from pathlib import Path

import numpy as np
import pytest

from datamodules.sudoku_files import load_boards
from datamodules.sudoku_generator import generate_splits
from datamodules.sudoku_rules import SudokuRules

RULES = SudokuRules(2, 2)
BOARDS = generate_splits(RULES, {"train": 6}, (4, 7), seed=0)["train"]


def text(board: np.ndarray, blank: str = "0") -> str:
    return "".join(map(str, board.ravel())).replace("0", blank)


PAIRS = [(text(puzzle), text(solution)) for puzzle, solution in BOARDS]


def write(path: Path, *lines: str) -> Path:
    path.write_text("\n".join(lines) + "\n")
    return path


@pytest.mark.parametrize(
    ("header", "row"),
    [
        ("puzzle,solution", "{0},{1}"),
        ("quizzes,solutions", "{0},{1}"),
        ("id,Quiz,note,Solution", "7,{0},hard,{1}"),
        (None, "{0},{1}"),
        (None, "{0}"),
        ("puzzle", "{0}"),
        (None, "0000183b305c {0} 1.2"),
    ],
)
@pytest.mark.parametrize("blank", [".", "0"])
def test_text_files(header: str | None, row: str, blank: str, tmp_path: Path):
    lines = [row.format(puzzle.replace("0", blank), solution) for puzzle, solution in PAIRS]
    file = write(tmp_path / "sudoku", *([header] if header else []), *lines)
    assert (load_boards(RULES, "csv", file) == BOARDS).all()


@pytest.mark.parametrize("names", [("puzzle", "solution"), ("quiz", "solution"), ("puzzle",)])
def test_parquet(names: tuple[str, ...], tmp_path: Path):
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    columns = {name: [pair[column] for pair in PAIRS] for column, name in enumerate(names)}
    parquet.write_table(pyarrow.table({"difficulty": [0] * 6, **columns}), tmp_path / "sudoku.parquet")
    assert (load_boards(RULES, "parquet", tmp_path / "sudoku.parquet") == BOARDS).all()


def test_parquet_without_pyarrow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(ImportError, match=r"pip install 'leyden\[data\]'"):
        load_boards(RULES, "parquet", write(tmp_path / "sudoku.parquet", ""))


@pytest.mark.parametrize("shape", [(6, 2, 4, 4), (6, 2, 16)])
def test_npy_pairs(shape: tuple[int, ...], tmp_path: Path):
    np.save(tmp_path / "sudoku.npy", BOARDS.reshape(shape).astype(np.int64))
    assert (load_boards(RULES, "npy", tmp_path / "sudoku.npy") == BOARDS).all()


def test_npy_puzzles_and_npz(tmp_path: Path):
    np.save(tmp_path / "puzzles.npy", BOARDS[:, 0])
    assert (load_boards(RULES, "npy", tmp_path / "puzzles.npy") == BOARDS).all()
    np.savez(tmp_path / "sudoku.npz", puzzle=BOARDS[:, 0], solution=BOARDS[:, 1])
    assert (load_boards(RULES, "npy", tmp_path / "sudoku.npz") == BOARDS).all()


def test_digits_above_nine_are_letters(tmp_path: Path):
    rules = SudokuRules(2, 5)
    rows, columns = np.indices((10, 10))
    solution = (5 * (rows % 2) + rows // 2 + columns) % 10 + 1
    line = "".join("0123456789A"[digit] for digit in solution.ravel())
    loaded = load_boards(rules, "csv", write(tmp_path / "ten", line[:-1] + "." + "," + line.lower()))
    assert (loaded[0, 1] == solution).all()
    assert loaded[0, 0, -1, -1] == 0


def test_limit_and_givens(tmp_path: Path):
    file = write(tmp_path / "sudoku", *(",".join(pair) for pair in PAIRS))
    assert (load_boards(RULES, "csv", file, limit=2) == BOARDS[:2]).all()
    counts = (BOARDS[:, 0] > 0).sum(axis=(1, 2))
    wanted = (counts.min() + 1, counts.max())
    assert 0 < (counts > counts.min()).sum() < 6
    assert (load_boards(RULES, "csv", file, givens=wanted) == BOARDS[counts > counts.min()]).all()


PUZZLE, SOLUTION = PAIRS[0]
OTHER = SOLUTION.translate(str.maketrans("1234", "2341"))


@pytest.mark.parametrize(
    ("row", "message"),
    [
        (f"{PUZZLE[:-1]},{SOLUTION}", "row 2 of .* has a puzzle of 15 characters, a board of 2 x 2 boxes has 16"),
        (f"{PUZZLE},{SOLUTION}1", "row 2 of .* has a solution of 17 characters"),
        (f"5{PUZZLE[1:]},{SOLUTION}", "row 2 of .* illegal character '5' in its puzzle: use digits up to 4"),
        (f"{PUZZLE},{SOLUTION[:-1]}é", "row 2 of .* illegal character 'é' in its solution"),
        (f"11{'0' * 14},{SOLUTION}", r"row 2 of .* has givens that clash .*\(1 such rows\)"),
        (f"{PUZZLE},{SOLUTION[:-1]}0", "row 2 of .* solution that is not a valid full board"),
        (f"{PUZZLE},{SOLUTION[::-1][:-1] + SOLUTION[1]}", "row 2 of .* solution that is not a valid full board"),
        (f"{PUZZLE},{OTHER}", "row 2 of .* contradicts the puzzle"),
        ("1230000400000000,", "row 2 of .* without a solution"),
        (f"{PUZZLE}", "row 2 of .* has 1 fields, its header has 2"),
    ],
)
def test_wrong_rows_are_named(row: str, message: str, tmp_path: Path):
    file = write(tmp_path / "sudoku.csv", "puzzle,solution", ",".join(PAIRS[1]), row, ",".join(PAIRS[2]))
    with pytest.raises(ValueError, match=message):
        load_boards(RULES, "csv", file)


def test_wrong_lengths_in_a_bare_list_are_named(tmp_path: Path):
    with pytest.raises(ValueError, match="row 2 of .* has a puzzle of 15 characters"):
        load_boards(RULES, "csv", write(tmp_path / "list", PUZZLE, PUZZLE[1:]))


def test_several_solutions_give_one_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    file = write(tmp_path / "sudoku.csv", "puzzle,solution", ",".join(PAIRS[1]), f"{'0' * 16},{SOLUTION}", f"1{'0' * 15},")
    loaded = load_boards(RULES, "csv", file)
    assert (loaded[1, 1] == BOARDS[0, 1]).all(), "a stated solution is kept"
    assert RULES.is_solved(loaded[:, 1]).all()
    (record,) = caplog.records
    assert record.levelname == "WARNING"
    assert "2 of 3 puzzles" in record.message
    assert "row 2" in record.message


def test_wrong_columns_and_files(tmp_path: Path):
    with pytest.raises(ValueError, match="has the columns board, answer: it needs `puzzle`"):
        load_boards(RULES, "csv", write(tmp_path / "sudoku.csv", "board,answer", ",".join(PAIRS[0])))
    with pytest.raises(FileNotFoundError, match="nowhere.csv"):
        load_boards(RULES, "csv", tmp_path / "nowhere.csv")
    with pytest.raises(ValueError, match="no readable numpy file"):
        load_boards(RULES, "npy", write(tmp_path / "sudoku.npy", "text"))
    np.save(tmp_path / "nine.npy", np.zeros((3, 9, 9), dtype=np.uint8))
    with pytest.raises(ValueError, match=r"boards of shape \(9, 9\).*boxes of 2 x 2 need \(4, 4\)"):
        load_boards(RULES, "npy", tmp_path / "nine.npy")
    np.save(tmp_path / "five.npy", np.where(BOARDS == 4, 5, BOARDS))
    with pytest.raises(ValueError, match="number outside 0 to 4"):
        load_boards(RULES, "npy", tmp_path / "five.npy")
    np.savez(tmp_path / "names.npz", board=BOARDS)
    with pytest.raises(ValueError, match="holds board: it needs an array `puzzle`"):
        load_boards(RULES, "npy", tmp_path / "names.npz")


def test_a_file_that_is_no_parquet(tmp_path: Path):
    pytest.importorskip("pyarrow")
    with pytest.raises(ValueError, match="no readable parquet file"):
        load_boards(RULES, "parquet", write(tmp_path / "sudoku.parquet", "text"))

"""Sudoku puzzles from csv, parquet and numpy files and from plain lists of puzzles."""

import csv
import logging
from collections.abc import Iterator
from functools import partial
from itertools import chain, islice
from pathlib import Path

import numpy as np

from datamodules.ordered_map import ordered_map
from datamodules.sudoku_rules import SudokuRules
from datamodules.sudoku_solver import solve_boards

logger = logging.getLogger(__name__)

PUZZLE_NAMES = ("puzzle", "quiz", "quizzes", "puzzles")
SOLUTION_NAMES = ("solution", "solutions")
SOLVER_CHUNK = 256
ILLEGAL = 255

TextRows = Iterator[tuple[str, str | None]]


def load_boards(
    rules: SudokuRules, source: str, path: Path, limit: int | None = None, givens: tuple[int, int] | None = None
) -> np.ndarray:
    """Read puzzles with their solutions and check them.

    ======= ============================================================================================================
    source  what it reads
    ======= ============================================================================================================
    csv     columns ``puzzle,solution`` or ``quiz,solution``; or no header and one puzzle a line, with or without a
            solution, other fields being left out
    parquet columns ``puzzle`` and ``solution``; needs pyarrow
    npy     ``.npy`` of shape ``[n, 2, side, side]`` (puzzle, solution) or ``[n, side, side]`` (puzzles), or ``.npz`` with arrays
            ``puzzle`` and ``solution``; boards may be flat
    ======= ============================================================================================================

    In text, blanks are ``.`` or ``0``, digits above 9 are the letters from ``A`` on. Missing solutions are found by the solver.
    All puzzles are searched for a second solution, and one warning tells how many have one.

    Args:
        rules: the board.
        source: ``csv``, ``parquet`` or ``npy``.
        path: the file.
        limit: how many puzzles to read.
        givens: keep only puzzles whose number of givens is in this range.

    Returns:
        Puzzles and solutions as uint8, shape ``[n, 2, side, side]``.

    Raises:
        FileNotFoundError: if there is no such file.
        ImportError: if parquet is asked for without pyarrow.
        ValueError: if the file or a row of it is wrong; names the row, counted from 1 without the header.
    """
    if not path.is_file():
        raise FileNotFoundError(f"there is no Sudoku file {path}: set `path` to a {source} file of puzzles")
    if source == "npy":
        puzzles, solutions, rows = _select(*_read_arrays(rules, path), limit, givens)
    else:
        text_rows = {"csv": _csv_rows, "parquet": _parquet_rows}[source](rules, path)
        puzzles, solutions, rows = _select_text(rules, path, text_rows, limit, givens)
    _refuse(rules.clashes(puzzles), rows, path, "has givens that clash in a row, column or box")
    missing = (solutions == 0).all(axis=(1, 2))
    stated, stated_puzzles, stated_rows = solutions[~missing], puzzles[~missing], rows[~missing]
    _refuse(~rules.is_solved(stated), stated_rows, path, "has a solution that is not a valid full board")
    contradicts = ((stated_puzzles > 0) & (stated_puzzles != stated)).any(axis=(1, 2))
    _refuse(contradicts, stated_rows, path, "has a solution that contradicts the puzzle")
    found, counts = _solve_all(rules, puzzles)
    _refuse(counts == 0, rows, path, "has a puzzle without a solution")
    if ambiguous := int((counts > 1).sum()):
        logger.warning(
            "%d of %d puzzles in %s have several solutions (first: row %d): a right answer may count as wrong",
            ambiguous, len(puzzles), path, rows[counts > 1][0],
        )  # fmt: skip
    return np.stack([puzzles, np.where(missing[:, None, None], found, solutions)], axis=1)


def parse_boards(rules: SudokuRules, texts: list[str], rows: np.ndarray, path: Path, what: str = "puzzle") -> np.ndarray:
    """Turn strings of ``cells`` characters into digits ``[n, side, side]``; ``rows`` are their numbers for error messages."""
    lengths = np.fromiter(map(len, texts), dtype=np.int64, count=len(texts))
    wrong = lengths != rules.cells
    if wrong.any():
        first = wrong.argmax()
        raise ValueError(
            f"row {rows[first]} of {path} has a {what} of {lengths[first]} characters, "
            f"a board of {rules.box_rows} x {rules.box_cols} boxes has {rules.cells}"
        )
    codes = np.frombuffer("".join(texts).encode("ascii", errors="replace"), dtype=np.uint8).reshape(-1, rules.cells)
    digits = _digit_table(rules)[codes]
    if (digits == ILLEGAL).any():
        row, cell = np.argwhere(digits == ILLEGAL)[0]
        raise ValueError(
            f"row {rows[row]} of {path} has the illegal character {texts[row][cell]!r} in its {what}: "
            f"use digits up to {rules.side} (letters from A on above 9) and . or 0 for blanks"
        )
    return digits.reshape(-1, rules.side, rules.side)


def _digit_table(rules: SudokuRules) -> np.ndarray:
    """Digit of every character code, ``ILLEGAL`` for others."""
    table = np.full(256, ILLEGAL, dtype=np.uint8)
    table[ord(".")] = 0
    for digit, symbol in enumerate("0123456789ABCDEFGHIJKLMNOP"[: rules.side + 1]):
        table[ord(symbol)] = table[ord(symbol.lower())] = digit
    return table


def _csv_rows(rules: SudokuRules, path: Path) -> TextRows:
    """Yield puzzle and solution strings of a csv with a header or a bare list."""
    with path.open(newline="", encoding="utf-8-sig") as file:
        lines = csv.reader(line for line in file if line.strip())
        first = next(lines, [])
        names = [name.strip().lower() for name in first]
        puzzle_column = _column(names, PUZZLE_NAMES)
        if puzzle_column is not None:
            solution_column = _column(names, SOLUTION_NAMES)
            for number, fields in enumerate(lines, start=1):
                if len(fields) != len(names):
                    raise ValueError(f"row {number} of {path} has {len(fields)} fields, its header has {len(names)}")
                yield fields[puzzle_column].strip(), None if solution_column is None else fields[solution_column].strip()
        elif any(name.isalpha() and len(name) != rules.cells for name in names):
            raise ValueError(f"{path} has the columns {', '.join(names)}: it needs `puzzle` or `quiz`, and `solution` if known")
        else:
            for fields in chain([first] if first else [], lines):
                yield _bare_row(rules, fields)


def _bare_row(rules: SudokuRules, fields: list[str]) -> tuple[str, str | None]:
    """Pick puzzle and solution out of a line without named columns: the words of the right length, else the longest."""
    words = [word for field in fields for word in field.split()] or [""]
    boards = [word for word in words if len(word) == rules.cells] or [max(words, key=len)]
    return boards[0], boards[1] if len(boards) > 1 else None


def _parquet_rows(rules: SudokuRules, path: Path) -> TextRows:
    """Yield puzzle and solution strings of a parquet file, a piece at a time."""
    try:
        from pyarrow import parquet
    except ImportError as error:
        raise ImportError(f"reading {path} needs pyarrow: pip install 'leyden[data]'") from error
    try:
        file = parquet.ParquetFile(path)
    except ValueError as error:
        raise ValueError(f"{path} is no readable parquet file: {error}") from error
    names = [name.lower() for name in file.schema_arrow.names]
    puzzle_column, solution_column = _column(names, PUZZLE_NAMES), _column(names, SOLUTION_NAMES)
    if puzzle_column is None:
        raise ValueError(f"{path} has the columns {', '.join(names)}: it needs `puzzle` or `quiz`, and `solution` if known")
    columns = [file.schema_arrow.names[column] for column in (puzzle_column, solution_column) if column is not None]
    for piece in file.iter_batches(columns=columns):
        texts = [piece.column(name).to_pylist() for name in columns]
        yield from zip(texts[0], texts[1] if len(texts) > 1 else [None] * len(texts[0]), strict=True)


def _column(names: list[str], wanted: tuple[str, ...]) -> int | None:
    return next((names.index(name) for name in wanted if name in names), None)


def _select_text(
    rules: SudokuRules, path: Path, text_rows: TextRows, limit: int | None, givens: tuple[int, int] | None
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Parse rows a piece at a time until ``limit`` are kept: puzzles, solutions (zeros if missing), row numbers."""
    empty = np.empty((0, rules.side, rules.side), dtype=np.uint8)
    pieces = [(empty, empty, np.empty(0, dtype=np.int64))]
    kept, read = 0, 0
    while (limit is None or kept < limit) and (piece := list(islice(text_rows, 10_000))):
        rows = np.arange(read + 1, read + len(piece) + 1)
        puzzles = parse_boards(rules, [puzzle or "" for puzzle, _ in piece], rows, path)
        blank = "0" * rules.cells
        solutions = parse_boards(rules, [solution or blank for _, solution in piece], rows, path, "solution")
        pieces.append(_select(puzzles, solutions, rows, None if limit is None else limit - kept, givens))
        kept, read = kept + len(pieces[-1][0]), read + len(piece)
    puzzles, solutions, rows = (np.concatenate(parts) for parts in zip(*pieces, strict=True))
    return puzzles, solutions, rows


def _select(
    puzzles: np.ndarray, solutions: np.ndarray, rows: np.ndarray, limit: int | None, givens: tuple[int, int] | None
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Keep the first ``limit`` puzzles whose number of givens is in range."""
    keep = np.arange(len(puzzles))
    if givens:
        counts = (puzzles > 0).sum(axis=(1, 2))
        keep = keep[(givens[0] <= counts) & (counts <= givens[1])]
    keep = keep[:limit]
    return puzzles[keep], solutions[keep], rows[keep]


def _read_arrays(rules: SudokuRules, path: Path) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Read puzzles, solutions (zeros if missing) and row numbers of a numpy file."""
    try:
        content = np.load(path, allow_pickle=False)
    except (ValueError, OSError, EOFError) as error:
        raise ValueError(f"{path} is no readable numpy file: {error}") from error
    if isinstance(content, np.ndarray):
        pairs = content.shape[1:] in ((2, rules.side, rules.side), (2, rules.cells))
        puzzles, solutions = (content[:, 0], content[:, 1]) if pairs else (content, np.zeros_like(content))
    else:
        puzzle_name = next((name for name in PUZZLE_NAMES if name in content), None)
        if puzzle_name is None:
            raise ValueError(f"{path} holds {', '.join(content)}: it needs an array `puzzle`, and `solution` if known")
        puzzles = content[puzzle_name]
        solution_name = next((name for name in SOLUTION_NAMES if name in content), None)
        solutions = content[solution_name] if solution_name else np.zeros_like(puzzles)
    if puzzles.shape[1:] not in ((rules.side, rules.side), (rules.cells,)) or solutions.shape != puzzles.shape:
        raise ValueError(
            f"{path} has boards of shape {puzzles.shape[1:]} and solutions of shape {solutions.shape[1:]}, "
            f"boxes of {rules.box_rows} x {rules.box_cols} need ({rules.side}, {rules.side})"
        )
    rows = np.arange(1, len(puzzles) + 1)
    for boards in (puzzles, solutions):
        flat = boards.reshape(len(boards), rules.cells)
        _refuse(np.any((flat < 0) | (flat > rules.side), axis=1), rows, path, f"has a number outside 0 to {rules.side}")
    shape = (-1, rules.side, rules.side)
    return puzzles.reshape(shape).astype(np.uint8), solutions.reshape(shape).astype(np.uint8), rows


def _refuse(wrong: np.ndarray, rows: np.ndarray, path: Path, complaint: str) -> None:
    """Raise an error that names the first wrong row."""
    if wrong.any():
        raise ValueError(f"row {rows[wrong.argmax()]} of {path} {complaint} ({int(wrong.sum())} such rows)")


def _solve_all(rules: SudokuRules, puzzles: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """First solutions and their number up to two, see :func:`solve_boards`."""
    pieces = [puzzles[first : first + SOLVER_CHUNK] for first in range(0, len(puzzles), SOLVER_CHUNK)]
    solved = list(ordered_map(partial(solve_boards, rules), pieces))
    if not solved:
        return puzzles, np.empty(0, dtype=np.int64)
    return np.concatenate([boards for boards, _ in solved]), np.concatenate([counts for _, counts in solved])

from pathlib import Path

import numpy as np
import pytest
import torch
from matplotlib.colors import to_rgba

from datamodules import sudoku
from datamodules.base import BatchKey
from datamodules.sudoku import SudokuBoards, SudokuDataModule
from datamodules.sudoku_figure import GIVEN, RIGHT, SOLUTION, WRONG
from datamodules.sudoku_generator import generate_splits
from datamodules.sudoku_rules import SudokuRules
from datamodules.sudoku_symmetries import SudokuAugmentation, class_keys

RULES = SudokuRules(2, 2)
BOARDS = generate_splits(RULES, {"train": 24}, (4, 6), seed=0)["train"]


def small(root: Path, **options) -> SudokuDataModule:
    defaults = {"box_rows": 2, "box_cols": 2, "givens": (4, 6), "train_size": 24, "val_size": 6, "test_size": 8, "batch_size": 8}
    return SudokuDataModule(**{**defaults, "root": str(root), **options})


def ready(root: Path, **options) -> SudokuDataModule:
    data = small(root, **options)
    data.prepare_data()
    data.setup("fit")
    return data


def write_csv(path: Path, boards: np.ndarray) -> Path:
    lines = ["".join(map(str, puzzle.ravel())) + "," + "".join(map(str, solution.ravel())) for puzzle, solution in boards]
    path.write_text("\n".join(["puzzle,solution", *lines]))
    return path


def check(batch: dict[str, torch.Tensor], rows: int) -> None:
    puzzle, solution = batch["puzzle"].numpy(), batch["solution"].numpy()
    assert puzzle.shape == solution.shape == (rows, 4, 4)
    assert puzzle.dtype == solution.dtype == np.int64
    assert RULES.is_solved(solution).all()
    assert ((puzzle == 0) | (puzzle == solution)).all()
    assert (puzzle == 0).any()


def test_loaders(tmp_path: Path):
    data = ready(tmp_path, eval_batch_size=4)
    for batch in data.train_dataloader():
        check(batch, 8)
    assert [len(batch["puzzle"]) for batch in data.val_dataloader()] == [3, 3]
    assert (
        [len(batch["puzzle"]) for batch in data.test_dataloader()]
        == [4, 4]
        == [len(batch["puzzle"]) for batch in data.predict_dataloader()]
    )
    assert data.model_arguments() == {"box_shape": (2, 2)}
    first = next(iter(data.test_dataloader()))
    assert (first["puzzle"].numpy() == data.test_set.boards[:4, 0]).all()


def test_box_shape_is_rows_then_columns(tmp_path: Path):
    data = ready(tmp_path, box_rows=2, box_cols=3, givens=(12, 18), train_size=8, val_size=1, test_size=0, num_workers=1)
    assert data.model_arguments() == {"box_shape": (2, 3)}
    assert data.test_set is None
    (batch,) = data.train_dataloader()
    assert sorted(batch["solution"][0, :2, :3].flatten().tolist()) == [1, 2, 3, 4, 5, 6]


@pytest.mark.parametrize("augment", SudokuAugmentation.kinds)
def test_two_ranks_see_the_batch_of_one(augment: str):
    boards = SudokuBoards(BOARDS, SudokuAugmentation(RULES, augment), seed=5)
    indices = np.array([3, 1, 4, 15, 9, 2, 6, 5])
    whole = boards[BatchKey(2, 7, indices, slice(None))]
    check(whole, 8 * boards.augmentation.images)
    for rank in range(2):
        part = boards[BatchKey(2, 7, indices, slice(rank, None, 2))]
        assert all(torch.equal(part[name], whole[name][rank::2]) for name in whole)
    for epoch in (2, 3):
        again = boards[BatchKey(epoch, 7, indices, slice(None))]["puzzle"]
        assert torch.equal(again, whole["puzzle"]) == (epoch == 2 or augment in ("none", "dihedral8"))


def test_augmentation_keeps_the_class_of_the_sample():
    indices = np.arange(24)
    for augment in ("digits", "dihedral"):
        batch = SudokuBoards(BOARDS, SudokuAugmentation(RULES, augment), seed=5)[BatchKey(0, 0, indices, slice(None))]
        assert class_keys(RULES, batch["puzzle"].numpy()) == class_keys(RULES, BOARDS[:, 0])
        assert (batch["puzzle"].numpy() != BOARDS[:, 0]).any()


def test_dihedral8_shows_all_images_of_a_puzzle_in_one_batch(tmp_path: Path):
    data = ready(tmp_path, augment="dihedral8", batch_size=16)
    batches = list(data.train_dataloader())
    assert len(batches) == 12
    for batch in batches:
        check(batch, 16)
        for images in batch["solution"].numpy().reshape(2, 8, 4, 4):
            expected = [np.rot90(image, turns) for image in (images[0], images[0].T) for turns in range(4)]
            assert {image.tobytes() for image in images} == {np.ascontiguousarray(image).tobytes() for image in expected}
    with pytest.raises(ValueError, match="multiple of 8, not 12"):
        small(tmp_path, augment="dihedral8", batch_size=12)


def test_validation_is_never_augmented(tmp_path: Path):
    data = ready(tmp_path, augment="full")
    (first,), (second,) = data.val_dataloader(), data.val_dataloader()
    assert torch.equal(first["puzzle"], second["puzzle"])
    assert (first["puzzle"].numpy() == data.val_set.boards[:, 0]).all()


def test_resume_continues_with_the_same_batches(tmp_path: Path):
    loader = ready(tmp_path, augment="full", seed=2).train_dataloader()
    loader.sampler.set_epoch(1)
    iterator = iter(loader)
    next(iterator)
    state, rest = loader.state_dict(), [batch["puzzle"] for batch in iterator]
    resumed = ready(tmp_path, augment="full", seed=2).train_dataloader()
    resumed.load_state_dict(state)
    assert all(torch.equal(one, batch["puzzle"]) for one, batch in zip(rest, resumed, strict=True))
    assert len(rest) == 2


def kept(root: Path) -> list[Path]:
    return sorted((root / "sudoku").iterdir())


def test_puzzles_are_generated_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    ready(tmp_path)
    (file,) = kept(tmp_path)
    assert all(part in file.name for part in ("2x2", "4-6", "24-6-8", "seed0", f"v{sudoku.GENERATOR_VERSION}"))
    monkeypatch.setattr(sudoku, "generate_splits", None)
    assert len(ready(tmp_path, seed=9, augment="full").train_set) == 24
    for changed in ({"train_size": 25}, {"val_size": 7}, {"givens": (4, 7)}, {"generator_seed": 1}):
        with pytest.raises(TypeError):
            small(tmp_path, **changed).prepare_data()
    assert kept(tmp_path) == [file]


@pytest.mark.parametrize("damage", ["torn", "empty", "digit"])
def test_damaged_puzzles_are_made_anew(damage: str, tmp_path: Path, caplog: pytest.LogCaptureFixture):
    ready(tmp_path)
    (file,) = kept(tmp_path)
    sound = file.read_bytes()
    broken = {"torn": sound[:-100], "empty": b"", "digit": sound[:-1] + bytes([sound[-1] % 4 + 1])}[damage]
    file.write_bytes(broken)
    small(tmp_path).prepare_data()
    assert file.read_bytes() == sound
    assert sum("damaged" in record.message for record in caplog.records) == 1


def test_setup_without_prepare_data(tmp_path: Path):
    with pytest.raises(FileNotFoundError, match="prepare_data"):
        small(tmp_path).setup("fit")


def test_a_folder_that_cannot_be_written(tmp_path: Path):
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError, match="set `root` to a writable folder"):
        small(tmp_path / "file").prepare_data()


def test_one_file_is_cut_into_train_test_and_validation(tmp_path: Path):
    file = write_csv(tmp_path / "sudoku.csv", BOARDS)
    options = {"source": "csv", "path": str(file), "givens": None, "train_size": 10, "test_size": 8, "val_size": 6}
    data = ready(tmp_path, **options)
    assert (data.train_set.boards == BOARDS[:10]).all()
    assert (data.test_set.boards == BOARDS[10:18]).all()
    assert (data.val_set.boards == BOARDS[18:]).all()
    with pytest.raises(ValueError, match="has only 24 puzzles, too few for train_size=11 . val_size=6 . test_size=8"):
        small(tmp_path, **{**options, "train_size": 11}).prepare_data()
    write_csv(file, BOARDS[::-1])
    assert (ready(tmp_path, **options).train_set.boards == BOARDS[:-11:-1]).all(), "a changed file is read again"


def test_a_folder_holds_one_file_a_split(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    folder = tmp_path / "data" / "rrn"
    folder.mkdir(parents=True)
    for name, boards in (("train", BOARDS[:10]), ("valid", BOARDS[10:14]), ("test", BOARDS[14:])):
        write_csv(folder / f"{name}.csv", boards)
    monkeypatch.setenv("LEYDEN_DATA", str(tmp_path / "data"))
    options = {"source": "csv", "path": "rrn", "givens": None, "train_size": 10, "val_size": 4, "test_size": 10}
    data = ready(tmp_path, **options)
    assert (data.val_set.boards == BOARDS[10:14]).all()
    assert (data.test_set.boards == BOARDS[14:]).all()
    (folder / "valid.csv").unlink()
    with pytest.raises(FileNotFoundError, match="no file val or valid"):
        small(tmp_path, **options).prepare_data()
    with pytest.raises(FileNotFoundError, match="LEYDEN_DATA"):
        small(tmp_path, **{**options, "path": "nowhere"}).prepare_data()


def test_puzzles_shared_by_splits_of_a_file_are_counted(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    boards = np.concatenate([BOARDS[:10], np.rot90(BOARDS[:3], axes=(2, 3)), BOARDS[10:]])
    file = write_csv(tmp_path / "sudoku.csv", boards)
    ready(tmp_path, source="csv", path=str(file), givens=None, train_size=10, test_size=8, val_size=6)
    (record,) = [record for record in caplog.records if record.levelname == "WARNING"]
    assert "3 of 8 test puzzles have the givens of a training puzzle" in record.message


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"source": "csv"}, "needs a `path`"),
        ({"path": "x.csv"}, "`path` needs source"),
        ({"source": "excel", "path": "x"}, "source='excel' is unknown"),
        ({"augment": "rotate"}, "augment='rotate' is unknown"),
        ({"train_size": 0}, "train_size=0"),
        ({"givens": (9, 5)}, r"givens=\(9, 5\)"),
        ({"box_rows": 0}, "box_rows=0"),
    ],
)
def test_bad_settings_are_refused(options: dict, message: str, tmp_path: Path):
    with pytest.raises(ValueError, match=message):
        small(tmp_path, **options)


def test_plot_colours_tell_right_from_wrong(tmp_path: Path):
    data = small(tmp_path)
    puzzle, solution = (torch.from_numpy(board.astype(np.int64)) for board in BOARDS[0])
    prediction = solution.clone()
    row, column = (puzzle == 0).nonzero()[0].tolist()
    prediction[row, column] = solution[row, column] % 4 + 1
    blanks = int((puzzle == 0).sum())

    def colours(**sample) -> list:
        return [to_rgba(text.get_color()) for text in data.plot(sample).axes[0].texts]

    def count(found: list, colour: str) -> int:
        return found.count(to_rgba(colour))

    assert len(colours(puzzle=puzzle)) == count(colours(puzzle=puzzle), GIVEN) == 16 - blanks
    assert count(colours(puzzle=puzzle, solution=solution), SOLUTION) == blanks
    found = colours(puzzle=puzzle, solution=solution, prediction=prediction)
    assert (count(found, WRONG), count(found, RIGHT), count(found, GIVEN)) == (1, blanks - 1, 16 - blanks)

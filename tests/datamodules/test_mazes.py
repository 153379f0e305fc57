from pathlib import Path

import numpy as np
import pytest
import torch
from jsonargparse import ArgumentParser
from matplotlib.colors import to_rgb

from datamodules import MazeDataModule, mazes
from datamodules.base import BatchKey
from datamodules.maze_figure import COLOURS, WRONG
from datamodules.maze_generator import GOAL, OPEN, PATH, START, SUITES, WALL, MazeRules, are_solved, generate_splits, maze_keys
from datamodules.mazes import MazeBoards

BOARDS = generate_splits(MazeRules(7, 7, 4), {"train": 24}, seed=0)["train"]
WIDE = generate_splits(MazeRules(5, 9, 4), {"train": 24}, seed=0)["train"]


def small(root: Path, **options) -> MazeDataModule:
    defaults = {"height": 7, "width": 7, "min_path_length": 4, "train_size": 24, "val_size": 6, "test_size": 8, "batch_size": 16}
    return MazeDataModule(**{**defaults, "root": str(root), **options})


def ready(root: Path, **options) -> MazeDataModule:
    data = small(root, **options)
    data.prepare_data()
    data.setup("fit")
    return data


def check(batch: dict[str, torch.Tensor], rows: int, height: int = 7, width: int = 7) -> None:
    assert batch["maze"].shape == batch["solution"].shape == (rows, height, width)
    assert batch["maze"].dtype == batch["solution"].dtype == torch.int64
    assert are_solved(torch.stack([batch["maze"], batch["solution"]], dim=1).numpy()).all()
    assert ((batch["solution"] == PATH).sum(dim=(1, 2)) >= 3).all()


def kept(root: Path) -> list[Path]:
    return sorted((root / "mazes").iterdir())


def test_loaders(tmp_path: Path):
    data = ready(tmp_path, augment="none", eval_batch_size=4, ood=["2x", "1.5x"], ood_size=6)
    assert [len(batch["maze"]) for batch in data.train_dataloader()] == [16]
    assert [len(batch["maze"]) for batch in data.val_dataloader()] == [3, 3]
    assert data.suite_names() == ["2x", "1.5x"] == list(data.test_suites)
    main, double, larger = data.test_dataloader()
    for loader, sizes, side in ((main, [4, 4], 7), (double, [3, 3], 13), (larger, [3, 3], 11)):
        batches = list(loader)
        assert [len(batch["maze"]) for batch in batches] == sizes
        for batch in batches:
            check(batch, sizes[0], side, side)
    assert data.model_arguments()["test_suites"] == ["2x", "1.5x"]


def test_no_suites_and_no_test(tmp_path: Path):
    data = ready(tmp_path)
    assert data.suite_names() == []
    assert [len(batch["maze"]) for batch in data.test_dataloader()] == [8]
    assert ready(tmp_path, test_size=0).test_set is None


def test_splits_share_no_maze_and_training_mazes_give_way(tmp_path: Path):
    data = ready(tmp_path, train_size=400, val_size=60, test_size=80)
    keys = [set(maze_keys(split.boards[:, 0])) for split in (data.train_set, data.val_set, data.test_set)]
    assert [len(split) for split in keys] == [400, 60, 80]
    assert len(set.union(*keys)) == 540
    few = ready(tmp_path, train_size=24, val_size=60, test_size=80)
    assert (few.test_set.boards == data.test_set.boards).all()
    assert (few.val_set.boards == data.val_set.boards).all()


@pytest.mark.parametrize("boards", [BOARDS, WIDE], ids=["square", "wide"])
@pytest.mark.parametrize("augment", MazeBoards.kinds)
def test_two_ranks_see_the_batch_of_one(augment: str, boards: np.ndarray):
    dataset = MazeBoards(boards, augment, seed=5)
    indices = np.array([3, 1, 4, 15, 9, 2, 6, 5])
    whole = dataset[BatchKey(2, 7, indices, slice(None))]
    assert dataset.images == (1 if augment != "dihedral8" else 8 if boards is BOARDS else 4)
    check(whole, 8 * dataset.images, *boards.shape[2:])
    assert maze_keys(whole["maze"].numpy().astype(np.uint8)) == maze_keys(boards[np.repeat(indices, dataset.images), 0])
    for rank in range(2):
        part = dataset[BatchKey(2, 7, indices, slice(rank, None, 2))]
        assert all(torch.equal(part[name], whole[name][rank::2]) for name in whole)
    for epoch in (2, 3):
        again = dataset[BatchKey(epoch, 7, indices, slice(None))]["maze"]
        assert torch.equal(again, whole["maze"]) == (epoch == 2 or augment != "dihedral")


def test_dihedral8_shows_all_images_of_a_maze_in_one_batch(tmp_path: Path):
    batches = list(ready(tmp_path).train_dataloader())
    assert len(batches) == 12
    for batch in batches:
        check(batch, 16)
        for images in batch["solution"].numpy().reshape(2, 8, 7, 7):
            expected = [np.rot90(image, turns) for image in (images[0], images[0].T) for turns in range(4)]
            assert {image.tobytes() for image in images} == {np.ascontiguousarray(image).tobytes() for image in expected}
    wide = list(ready(tmp_path, height=5, width=9, batch_size=12).train_dataloader())
    assert len(wide) == 8
    for batch in wide:
        check(batch, 12, 5, 9)


def test_validation_is_never_augmented(tmp_path: Path):
    data = ready(tmp_path, augment="dihedral")
    (batch,) = data.val_dataloader()
    assert (batch["maze"].numpy() == data.val_set.boards[:, 0]).all()


def test_mazes_are_generated_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    ready(tmp_path, ood=["4xW"])
    splits, suite = kept(tmp_path)[::-1]
    assert all(part in splits.name for part in ("7x7", "moves4", "24-6-8", "seed0", f"v{mazes.GENERATOR_VERSION}"))
    assert all(part in suite.name for part in ("7x25", "moves15", "4xW-8", "seed0", f"v{mazes.GENERATOR_VERSION}"))
    monkeypatch.setattr(mazes, "generate_splits", None)
    assert len(ready(tmp_path, seed=9, augment="none", ood=["4xW"]).train_set) == 24
    for changed in (
        {"train_size": 25}, {"val_size": 7}, {"min_path_length": 5}, {"height": 9}, {"width": 9}, {"generator_seed": 1},
        {"ood": ["2xW"]}, {"ood": ["4xW"], "ood_size": 9},
    ):  # fmt: skip
        with pytest.raises(TypeError):
            small(tmp_path, **changed).prepare_data()
    assert len(kept(tmp_path)) == 2


def test_a_suite_depends_on_nothing_but_itself(tmp_path: Path):
    alone = ready(tmp_path / "a", ood=["2x"], train_size=30).test_suites["2x"].boards
    among = ready(tmp_path / "b", ood="auto", train_size=24, val_size=5).test_suites
    assert list(among) == list(SUITES)
    assert (alone == among["2x"].boards).all()
    assert not (alone == among["2x_long"].boards).all()
    other = ready(tmp_path / "c", ood="2x", generator_seed=1).test_suites["2x"].boards
    assert (alone != other).any()
    moves = (among["2x_long"].boards[:, 1] == PATH).sum(axis=(1, 2)) + 1
    assert moves.min() >= 12  # 54 / 18 * 4


@pytest.mark.parametrize("damage", ["torn", "empty", "token", "path"])
@pytest.mark.parametrize("number", [0, 1], ids=["suite", "splits"])
def test_damaged_mazes_are_made_anew(number: int, damage: str, tmp_path: Path, caplog: pytest.LogCaptureFixture):
    ready(tmp_path, ood=["2x"])
    file = kept(tmp_path)[number]
    sound = file.read_bytes()
    gap = sound.rindex(PATH)
    file.write_bytes(
        {
            "torn": sound[:-100],
            "empty": b"",
            "token": sound[:-1] + bytes([OPEN]),
            "path": sound[:gap] + bytes([OPEN]) + sound[gap + 1 :],
        }[damage]
    )
    small(tmp_path, ood=["2x"]).prepare_data()
    assert file.read_bytes() == sound
    assert sum("damaged" in record.message for record in caplog.records) == 1


def test_setup_without_prepare_data(tmp_path: Path):
    with pytest.raises(FileNotFoundError, match="prepare_data"):
        small(tmp_path).setup("fit")


def test_a_folder_that_cannot_be_written(tmp_path: Path):
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError, match="set `root` to a writable folder"):
        small(tmp_path / "file").prepare_data()


def test_length_out_of_reach(tmp_path: Path):
    with pytest.raises(ValueError, match=r"min_path_length=17 is out of reach .* the longest .* has \d+ moves"):
        small(tmp_path, min_path_length=17).prepare_data()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"height": 8}, "height=8 must be odd"),
        ({"width": 3}, "width=3 must be odd and at least 5"),
        ({"min_path_length": 0}, "min_path_length=0"),
        ({"ood": ["2x", "3x"]}, "unknown suite '3x', use auto, none or a list of 1.5x, 2x, 2x_long, 2xW, 4xW, 4x"),
        ({"ood": "all"}, "unknown suite 'all'"),
        ({"ood": "auto", "ood_size": 0}, "ood_size=0"),
        ({"ood": "auto", "test_size": 0, "ood_size": 3}, "test_size=0"),
        ({"augment": "rotate"}, "augment='rotate' is unknown"),
        ({"train_size": 0}, "train_size=0"),
        ({"batch_size": 12}, "multiple of 8, not 12"),
        ({"height": 5, "batch_size": 6}, "multiple of 4, not 6"),
    ],
)
def test_bad_settings_are_refused(options: dict, message: str, tmp_path: Path):
    with pytest.raises(ValueError, match=message):
        small(tmp_path, **options)


@pytest.mark.parametrize(
    ("written", "names"),
    [("auto", list(SUITES)), ("none", []), ("2x", ["2x"]), ("[1.5x, 4xW]", ["1.5x", "4xW"]), ('["2x"]', ["2x"]), ("[]", [])],
)
def test_suites_on_the_command_line(written: str, names: list[str]):
    parser = ArgumentParser(exit_on_error=False)
    parser.add_subclass_arguments(MazeDataModule, "data")
    parsed = parser.parse_args(["--data=datamodules.MazeDataModule", f"--data.ood={written}"])
    assert MazeDataModule(**parsed.data.init_args).suite_names() == names


def test_smoke_settings(tmp_path: Path):
    data = MazeDataModule(**MazeDataModule.smoke, root=str(tmp_path))
    data.prepare_data()
    data.setup("fit")
    check(next(iter(data.train_dataloader())), 8)
    check(next(iter(data.test_dataloader()[1])), 8, 13, 13)


def test_plot_tells_right_wrong_and_missing(tmp_path: Path):
    data = small(tmp_path)
    maze, solution = (torch.from_numpy(board.astype(np.int64)) for board in BOARDS[0])
    prediction = solution.clone()
    missing, wrong = (solution == PATH).nonzero()[0].tolist(), (solution == OPEN).nonzero()[0].tolist()
    prediction[tuple(missing)], prediction[tuple(wrong)], prediction[0, 0] = OPEN, PATH, PATH

    def drawn(**sample) -> tuple[np.ndarray, list, list]:
        (axes,) = data.plot(sample).axes
        (image,) = axes.images
        return image.get_array(), axes.patches, [(text.get_text(), text.get_position()) for text in axes.texts]

    def pixels(image: np.ndarray, token: int) -> torch.Tensor:
        return torch.from_numpy((np.asarray(image) == to_rgb(COLOURS[token])).all(axis=-1))

    image, patches, letters = drawn(maze=maze)
    assert all(torch.equal(pixels(image, token), maze == token) for token in (WALL, OPEN, START, GOAL))
    (start,), (goal,) = (maze == START).nonzero().tolist(), (maze == GOAL).nonzero().tolist()
    assert letters == [("S", (start[1], start[0])), ("G", (goal[1], goal[0]))]
    assert not patches
    image, patches, _ = drawn(maze=maze, solution=solution)
    assert torch.equal(pixels(image, PATH), solution == PATH)
    assert not patches
    image, patches, _ = drawn(maze=maze, solution=solution, prediction=prediction)
    assert torch.equal(pixels(image, PATH), (solution == PATH) & (prediction == PATH))
    corners = {name: {patch.get_xy() for patch in patches if patch.get_label() == name} for name in ("wrong", "missing")}
    assert corners["wrong"] == {(wrong[1] - 0.5, wrong[0] - 0.5), (-0.5, -0.5)}
    assert corners["missing"] == {(missing[1] - 0.5, missing[0] - 0.5)}
    colours = {patch.get_label(): (patch.get_facecolor()[:3], patch.get_hatch()) for patch in patches}
    assert colours["wrong"] == (to_rgb(WRONG), "xxxx")
    assert colours["missing"] == (to_rgb("white"), "////")

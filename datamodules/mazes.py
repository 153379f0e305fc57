"""Perfect mazes with one path from start to goal, generated once, and larger ones for the test."""

import logging
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np
import torch
from torch import Tensor

from datamodules.base import BatchKey, ExactDataLoader, LeydenDataModule
from datamodules.dihedral import dihedral_maps
from datamodules.maze_figure import draw_maze
from datamodules.maze_generator import GENERATOR_VERSION, SUITES, MazeRules, are_solved, generate_splits
from datamodules.roots import writable_folder, written_whole

if TYPE_CHECKING:
    from matplotlib.figure import Figure

logger = logging.getLogger(__name__)


class MazeBoards:
    """Mazes and solutions in memory or mapped from disk, turned and mirrored a batch at a time.

    Args:
        boards: mazes and solutions, uint8, shape ``[n, 2, height, width]``.
        augment: ``none``, ``dihedral`` (one random image of each maze) or ``dihedral8`` (all images in a row).
        seed: seed of the augmentation.

    Attributes:
        images: rows of a batch that one maze gives: 8 (4 where height and width differ) for ``dihedral8``, else 1.
    """

    kinds = ("none", "dihedral", "dihedral8")

    def __init__(self, boards: np.ndarray, augment: str, seed: int) -> None:
        self.boards, self.augment, self.seed = boards, augment, seed
        self._maps = dihedral_maps(*boards.shape[2:])
        self.images = len(self._maps) if augment == "dihedral8" else 1

    def __len__(self) -> int:
        return len(self.boards)

    def __getitem__(self, key: BatchKey) -> dict[str, Tensor]:
        """Return ``maze`` and ``solution``, int64, shape ``[local batch, height, width]``, with the tokens of the generator."""
        indices, numbers = np.repeat(key.indices, self.images), np.zeros(len(key.indices), dtype=np.int64)
        if self.augment == "dihedral":
            numbers = key.generator(self.seed).integers(len(self._maps), size=len(indices))
        if self.augment == "dihedral8":
            numbers = np.tile(np.arange(self.images), len(key.indices))
        chosen = np.asarray(self.boards[indices[key.rows]])
        sources = self._maps[numbers[key.rows], None]
        moved = np.take_along_axis(chosen.reshape(len(chosen), 2, -1), sources, axis=2)
        mapped = torch.from_numpy(moved.reshape(chosen.shape).astype(np.int64))
        return {"maze": mapped[:, 0], "solution": mapped[:, 1]}


class MazeDataModule(LeydenDataModule):
    """Perfect mazes: walls, one-pixel corridors without loops, a start, a goal, and the path between them.

    Tokens of a pixel are 1 wall, 2 open, 3 start, 4 goal, 5 path (in solutions; start and goal keep 3 and 4). Cells lie on odd rows
    and columns and are joined by randomised depth-first search; start and goal are drawn from all open pixels, passages included,
    until they are at least ``min_path_length`` moves apart. No maze occurs twice, up to turns and mirrors. Mazes are drawn once and
    kept on disk.

    The suites ``1.5x``, ``2x``, ``2x_long``, ``2xW``, ``4xW`` and ``4x`` are larger test sets, scaled to the base as
    :meth:`datamodules.maze_generator.MazeRules.suite` tells; none depends on the others or on the sizes of the splits.

    Args:
        height: rows of pixels, odd.
        width: columns of pixels, odd.
        min_path_length: least number of moves from start to goal; the path has one pixel less between them.
        train_size: number of training mazes.
        val_size: number of validation mazes.
        test_size: number of test mazes; 0 for no test set and no suites.
        ood: names of the suites that are tested as well, ``none``, or ``auto`` for all six.
        ood_size: mazes of a suite; default ``test_size``.
        augment: ``none``, ``dihedral`` (one random turn or mirror of each training maze in each epoch), or ``dihedral8``: a batch
            of 128 holds 16 mazes in all 8 images (32 in the 4 that keep a shape that is not square), and an epoch shows every
            maze in each of them.
        batch_size: global batch size.
        eval_batch_size: global batch size of validation, test and prediction; default ``batch_size``.
        num_workers: loader processes per rank.
        seed: seed of the data order and of augmentation.
        generator_seed: seed of the mazes, apart from ``seed`` so that runs of several seeds share their data.
        root: folder that keeps the mazes; default the user's cache folder.

    Source: Sheaf-ADMM (arXiv 2605.31005), maze experiments.
    """

    smoke = {
        "height": 7,
        "width": 7,
        "min_path_length": 3,
        "train_size": 32,
        "val_size": 8,
        "test_size": 8,
        "ood": ["2x"],
        "ood_size": None,
        "batch_size": 8,
        "eval_batch_size": 8,
        "num_workers": 0,
    }

    train_set: MazeBoards

    def __init__(
        self,
        height: int = 19,
        width: int = 19,
        min_path_length: int = 18,
        train_size: int = 10_000,
        val_size: int = 500,
        test_size: int = 1_000,
        ood: list[str] | str = "none",
        ood_size: int | None = None,
        augment: Literal["none", "dihedral", "dihedral8"] = "dihedral8",
        batch_size: int = 128,
        eval_batch_size: int | None = None,
        num_workers: int = 0,
        seed: int = 0,
        generator_seed: int = 0,
        root: str | None = None,
    ) -> None:
        super().__init__(batch_size, eval_batch_size, num_workers, seed)
        self.rules = MazeRules(height, width, min_path_length)
        if train_size < 1 or val_size < 1 or test_size < 0:
            raise ValueError(
                f"train_size={train_size} and val_size={val_size} must be positive, test_size={test_size} not negative"
            )
        names = {"none": [], "auto": list(SUITES)}.get(ood, [ood]) if isinstance(ood, str) else list(ood)
        unknown = [name for name in names if name not in SUITES]
        if unknown:
            raise ValueError(f"ood names the unknown suite {unknown[0]!r}, use auto, none or a list of {', '.join(SUITES)}")
        ood_size = test_size if ood_size is None else ood_size
        if names and (test_size < 1 or ood_size < 1):
            raise ValueError(f"suites need test_size={test_size} and ood_size={ood_size} to be positive, else set ood to none")
        if augment not in MazeBoards.kinds:
            raise ValueError(f"augment={augment!r} is unknown, use one of {', '.join(MazeBoards.kinds)}")
        images = len(dihedral_maps(height, width)) if augment == "dihedral8" else 1
        if batch_size % images:
            raise ValueError(f"augment='dihedral8' needs a batch_size that is a multiple of {images}, not {batch_size}")
        self.sizes = {"train": train_size, "val": val_size, "test": test_size}
        self.suites = {name: self.rules.suite(name) for name in names}
        self.ood_size, self.augment = ood_size, augment
        self.generator_seed, self.root = generator_seed, root

    def suite_names(self) -> list[str]:
        """Return the names of the larger test sets, in the order of their loaders."""
        return list(self.suites)

    def prepare_data(self) -> None:
        """Generate the mazes, and those of the suites, unless sound copies are kept already."""
        self._keep(self._kept(), self.rules, self.sizes)
        for name, rules in self.suites.items():
            self._keep(self._kept(name), rules, {name: self.ood_size})

    def setup(self, stage: str) -> None:
        """Map the kept mazes into memory."""
        train, val, test = np.split(_mapped(self._kept()), np.cumsum(list(self.sizes.values()))[:-1])
        self.train_set = MazeBoards(train, self.augment, self.seed)
        self.val_set = MazeBoards(val, "none", self.seed)
        self.test_set = MazeBoards(test, "none", self.seed) if len(test) else None
        self.test_suites = {name: MazeBoards(_mapped(self._kept(name)), "none", self.seed) for name in self.suites}

    def train_dataloader(self) -> ExactDataLoader:
        """Return the training loader; its sampler counts mazes, of which each may give several images."""
        return self._loader(self.train_set, self.batch_size // self.train_set.images, training=True)

    def plot(self, sample: dict[str, Tensor]) -> "Figure":
        """Draw one maze.

        Args:
            sample: ``maze`` and, if known, ``solution`` and ``prediction`` (path pixels are 5), each of shape ``[height, width]``.
        """
        return draw_maze(**{name: np.asarray(sample[name].cpu()) for name in ("maze", "solution", "prediction") if name in sample})

    def _kept(self, suite: str | None = None) -> Path:
        """File of the splits or of a suite, named by everything that they depend on."""
        rules = self.suites[suite] if suite else self.rules
        sizes = f"{suite}-{self.ood_size}" if suite else "-".join(map(str, self.sizes.values()))
        shape = f"{rules.height}x{rules.width}_moves{rules.min_path_length}"
        return writable_folder(self.root) / "mazes" / f"{shape}_{sizes}_seed{self.generator_seed}_v{GENERATOR_VERSION}.npy"

    def _keep(self, target: Path, rules: MazeRules, sizes: dict[str, int]) -> None:
        """Write the splits one after the other; the last is generated first, so training mazes depend on the others only."""
        if target.exists():
            if _is_sound(target, (sum(sizes.values()), 2, rules.height, rules.width)):
                return
            logger.warning("%s is damaged and is made anew", target)
        logger.info("generating %d mazes of %dx%d pixels, once", sum(sizes.values()), rules.height, rules.width)
        splits = generate_splits(rules, dict(reversed(sizes.items())), self.generator_seed)
        try:
            with written_whole(target) as temporary:
                np.save(temporary, np.concatenate([splits[name] for name in sizes]))
        except OSError as error:
            raise OSError(f"cannot keep the mazes in {target.parent} ({error}): set `root` to a writable folder") from error


def _is_sound(file: Path, shape: tuple[int, ...]) -> bool:
    """Whether the file holds as many mazes as it should, each with an unbroken path from start to goal."""
    try:
        boards = np.load(file, mmap_mode="r")
    except (ValueError, OSError, EOFError):
        return False
    if boards.shape != shape or boards.dtype != np.uint8:
        return False
    return all(are_solved(boards[first : first + 1_000]).all() for first in range(0, len(boards), 1_000))


def _mapped(file: Path) -> np.ndarray:
    """Map a kept file into memory."""
    if not file.exists():
        raise FileNotFoundError(f"{file} is missing: call prepare_data() first")
    return np.load(file, mmap_mode="r")

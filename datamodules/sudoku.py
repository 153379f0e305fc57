"""Sudoku puzzles of any box shape, generated or read from files."""

import logging
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch
from torch import Tensor

from datamodules.base import BatchKey, ExactDataLoader, LeydenDataModule
from datamodules.roots import require_data, writable_folder, written_whole
from datamodules.sudoku_figure import draw_board
from datamodules.sudoku_files import load_boards
from datamodules.sudoku_generator import GENERATOR_VERSION, check_givens, default_givens, generate_splits
from datamodules.sudoku_rules import SudokuRules
from datamodules.sudoku_symmetries import SudokuAugmentation, class_keys

if TYPE_CHECKING:
    from matplotlib.figure import Figure

logger = logging.getLogger(__name__)

SPLIT_FILES = {"train": ("train",), "val": ("val", "valid", "validation"), "test": ("test",)}


class SudokuBoards:
    """Puzzles and solutions in memory or mapped from disk, augmented a batch at a time.

    Args:
        boards: puzzles and solutions, uint8, shape ``[n, 2, side, side]``.
        augmentation: draws one map per board; a board with several images gives as many rows of the batch.
        seed: seed of the augmentation.
    """

    def __init__(self, boards: np.ndarray, augmentation: SudokuAugmentation, seed: int) -> None:
        self.boards, self.augmentation, self.seed = boards, augmentation, seed

    def __len__(self) -> int:
        return len(self.boards)

    def __getitem__(self, key: BatchKey) -> dict[str, Tensor]:
        """Return ``puzzle`` and ``solution``, int64, shape ``[local batch, side, side]``; blanks are 0."""
        indices = np.repeat(key.indices, self.augmentation.images)
        maps = self.augmentation.draw(key.generator(self.seed), len(indices))[key.rows]
        chosen = np.asarray(self.boards[indices[key.rows]])
        mapped = torch.from_numpy(maps(chosen.reshape(len(chosen), 2, -1)).reshape(chosen.shape))
        return {"puzzle": mapped[:, 0], "solution": mapped[:, 1]}


class SudokuDataModule(LeydenDataModule):
    """Sudoku puzzles with their solutions.

    Generated puzzles have exactly one solution and are drawn once, then kept on disk. No solution of one split occurs in another
    under renamed digits, turns and mirrors; boards of side 4 have only 288 solutions, so there the splits differ as puzzles only.
    The splits of files are taken as they come (the first ``train_size`` puzzles, then ``test_size``, then ``val_size``), and a
    warning tells how many puzzles of the smaller splits have their solution in the training set.

    Args:
        box_rows: rows of one box.
        box_cols: columns of one box; the board has ``box_rows * box_cols`` rows and columns.
        source: ``generate``, or the format of ``path``.
        path: file of puzzles, or folder with a file ``train``, ``val`` (or ``valid``) and ``test`` each; a relative path is also
            looked for in the data folders.
        givens: least and greatest number of givens. Default: 30 to 40 % of the cells for generated puzzles, all puzzles of a file.
        train_size: number of training puzzles.
        val_size: number of validation puzzles.
        test_size: number of test puzzles; 0 for no test set.
        augment: what is drawn anew for each training puzzle in each epoch: ``none``, ``digits`` (new digit names), ``dihedral`` (a
            turn or mirror), ``full`` (digits, bands, stacks, rows and columns in them, transpose), or ``dihedral8``: a batch of
            128 holds 16 puzzles in all 8 turns and mirrors (32 in the 4 that keep boxes that are not square), and an epoch shows
            every puzzle in each of them.
        batch_size: global batch size.
        eval_batch_size: global batch size of validation, test and prediction; default ``batch_size``.
        num_workers: loader processes per rank.
        seed: seed of the data order and of augmentation.
        generator_seed: seed of generated puzzles, apart from ``seed`` so that runs of several seeds share their data.
        root: folder that keeps the generated and converted puzzles; default the user's cache folder.
    """

    smoke = {
        "source": "generate",
        "path": None,
        "train_size": 48,
        "val_size": 8,
        "test_size": 8,
        "batch_size": 16,
        "eval_batch_size": 8,
        "num_workers": 0,
    }

    def __init__(
        self,
        box_rows: int = 3,
        box_cols: int = 3,
        source: Literal["generate", "csv", "parquet", "npy"] = "generate",
        path: str | None = None,
        givens: tuple[int, int] | None = None,
        train_size: int = 10_000,
        val_size: int = 500,
        test_size: int = 1_000,
        augment: Literal["none", "digits", "dihedral", "dihedral8", "full"] = "none",
        batch_size: int = 128,
        eval_batch_size: int | None = None,
        num_workers: int = 0,
        seed: int = 0,
        generator_seed: int = 0,
        root: str | None = None,
    ) -> None:
        super().__init__(batch_size, eval_batch_size, num_workers, seed)
        self.rules = SudokuRules(box_rows, box_cols)
        self.augmentation = SudokuAugmentation(self.rules, augment)
        if source not in ("generate", "csv", "parquet", "npy"):
            raise ValueError(f"source={source!r} is unknown, use generate, csv, parquet or npy")
        if (path is None) != (source == "generate"):
            raise ValueError(f"source={source!r} needs a `path`" if path is None else "`path` needs source csv, parquet or npy")
        if train_size < 1 or val_size < 1 or test_size < 0:
            raise ValueError(
                f"train_size={train_size} and val_size={val_size} must be positive, test_size={test_size} not negative"
            )
        if batch_size % self.augmentation.images:
            raise ValueError(
                f"augment='dihedral8' needs a batch_size that is a multiple of {self.augmentation.images}, not {batch_size}"
            )
        if source == "generate":
            givens = givens or default_givens(self.rules)
        if givens:
            check_givens(self.rules, givens)
        self.source, self.path, self.givens, self.root = source, path, givens, root
        self.sizes = {"train": train_size, "val": val_size, "test": test_size}
        self.generator_seed = generator_seed

    def model_arguments(self) -> dict[str, Any]:
        """Return the box shape, which a Sudoku model needs to lay out its agents."""
        return {**super().model_arguments(), "box_shape": (self.rules.box_rows, self.rules.box_cols)}

    def prepare_data(self) -> None:
        """Generate or convert the puzzles unless a sound copy is kept already."""
        target = self._kept()
        if target.exists():
            if self._is_sound(target):
                return
            logger.warning("%s is damaged and is made anew", target)
        splits = self._generated() if self.source == "generate" else self._read()
        try:
            with written_whole(target) as temporary:
                np.save(temporary, np.concatenate([splits[name] for name in self.sizes]))
        except OSError as error:
            raise OSError(
                f"cannot keep the Sudoku puzzles in {target.parent} ({error}): set `root` to a writable folder"
            ) from error

    def setup(self, stage: str) -> None:
        """Map the kept puzzles into memory."""
        target = self._kept()
        if not target.exists():
            raise FileNotFoundError(f"{target} is missing: call prepare_data() first")
        boards = np.load(target, mmap_mode="r")
        train, val, test = np.split(boards, np.cumsum(list(self.sizes.values()))[:-1])
        plain = SudokuAugmentation(self.rules, "none")
        self.train_set = SudokuBoards(train, self.augmentation, self.seed)
        self.val_set = SudokuBoards(val, plain, self.seed)
        self.test_set = SudokuBoards(test, plain, self.seed) if len(test) else None

    def train_dataloader(self) -> ExactDataLoader:
        """Return the training loader; its sampler counts puzzles, of which each may give several images."""
        return self._loader(self.train_set, self.batch_size // self.augmentation.images, training=True)

    def plot(self, sample: dict[str, Tensor]) -> "Figure":
        """Draw one board.

        Args:
            sample: ``puzzle`` and, if known, ``solution`` and ``prediction``, each of shape ``[side, side]``.

        Returns:
            Figure with black givens; a prediction is green where right and red where wrong, a mere solution grey.
        """
        boards = {name: np.asarray(sample[name].cpu()) for name in ("puzzle", "solution", "prediction") if name in sample}
        return draw_board(self.rules, **boards)

    def _kept(self) -> Path:
        """File of the puzzles, named by everything that they depend on."""
        rules, sizes = self.rules, "-".join(map(str, self.sizes.values()))
        givens = "givens" + "-".join(map(str, self.givens)) if self.givens else "all"
        if self.source == "generate":
            origin = f"seed{self.generator_seed}_v{GENERATOR_VERSION}"
        else:
            facts = [(str(file.resolve()), file.stat().st_size, file.stat().st_mtime_ns) for file in self._files().values()]
            origin = f"{self.source}_{sha256(repr(facts).encode()).hexdigest()[:12]}"
        return writable_folder(self.root) / "sudoku" / f"{rules.box_rows}x{rules.box_cols}_{givens}_{sizes}_{origin}.npy"

    def _is_sound(self, file: Path) -> bool:
        """Whether the file holds as many pairs as it should, all solutions valid and all givens taken from them."""
        try:
            boards = np.load(file, mmap_mode="r")
        except (ValueError, OSError, EOFError):
            return False
        if boards.shape != (sum(self.sizes.values()), 2, self.rules.side, self.rules.side) or boards.dtype != np.uint8:
            return False
        pieces = (boards[first : first + 100_000] for first in range(0, len(boards), 100_000))
        return all(
            self.rules.is_solved(piece[:, 1]).all() and ((piece[:, 0] == 0) | (piece[:, 0] == piece[:, 1])).all()
            for piece in pieces
        )

    def _generated(self) -> dict[str, np.ndarray]:
        """Generate the splits, the training set last, so that the others do not depend on its size."""
        assert self.givens is not None
        logger.info("generating %d Sudoku puzzles, once", sum(self.sizes.values()))
        sizes = {name: self.sizes[name] for name in ("test", "val", "train")}
        return generate_splits(self.rules, sizes, self.givens, self.generator_seed)

    def _files(self) -> dict[str, Path]:
        """Files by split; one file for all splits is called ``all``."""
        assert self.path is not None
        path = Path(self.path).expanduser()
        path = path if path.exists() else require_data(self.path, self.root)
        if path.is_file():
            return {"all": path}
        files = {}
        for split in (name for name, size in self.sizes.items() if size):
            stems = SPLIT_FILES[split]
            found = sorted(file for file in path.iterdir() if file.stem in stems and file.is_file())
            if not found:
                raise FileNotFoundError(f"{path} has no file {' or '.join(stems)}.*: name a single file in `path`, or add it")
            files[split] = found[0]
        return files

    def _read(self) -> dict[str, np.ndarray]:
        """Read the splits from one file or from one each."""
        splits: dict[str, np.ndarray] = {}
        for split, file in self._files().items():
            sizes = self.sizes if split == "all" else {split: self.sizes[split]}
            boards = load_boards(self.rules, self.source, file, sum(sizes.values()), self.givens)
            if len(boards) < sum(sizes.values()):
                wanted = " + ".join(f"{name}_size={size}" for name, size in sizes.items())
                fitting = f" with {self.givens[0]} to {self.givens[1]} givens" if self.givens else ""
                raise ValueError(f"{file} has only {len(boards)} puzzles{fitting}, too few for {wanted}")
            first = 0
            for name in (name for name in ("train", "test", "val") if name in sizes):
                splits[name] = boards[first : first + sizes[name]]
                first += sizes[name]
        empty = np.empty((0, 2, self.rules.side, self.rules.side), dtype=np.uint8)
        splits = {name: splits.get(name, empty) for name in self.sizes}
        self._warn_of_shared_classes(splits)
        return splits

    def _warn_of_shared_classes(self, splits: dict[str, np.ndarray]) -> None:
        """Tell how many validation and test puzzles have a sibling in the training set."""
        board = 1 if self.rules.side > 4 else 0
        known = set(class_keys(self.rules, splits["train"][:, board]))
        for name in ("val", "test"):
            shared = sum(key in known for key in class_keys(self.rules, splits[name][:, board]))
            if shared:
                logger.warning(
                    "%d of %d %s puzzles have the %s of a training puzzle, up to digit names, turns and mirrors",
                    shared, len(splits[name]), name, ("givens", "solution")[board],
                )  # fmt: skip

"""The citation graphs Cora, CiteSeer and PubMed in the pickles of the Planetoid repository."""

from pathlib import Path

import numpy as np

from datamodules.graphs.catalogue import PlanetoidSet
from datamodules.graphs.graph_arrays import GraphArrays, Masks
from datamodules.roots import data_folders


def raw_folders(node_set: PlanetoidSet, root: str | Path | None = None) -> list[Path]:
    """Return the folders that may hold the pickles, first those of ``root``, in Leyden's layout and in PyTorch Geometric's."""
    names = {"cora": "Cora", "citeseer": "CiteSeer", "pubmed": "PubMed"}
    own = [Path(root).expanduser() / "raw", Path(root).expanduser()] if root else []
    return own + [
        folder / place
        for folder in data_folders(root)
        for place in (f"graphs/{node_set.name}/raw", f"{names[node_set.name]}/raw", f"{node_set.name}/raw")
    ]


def find_raw_folder(node_set: PlanetoidSet, root: str | Path | None = None) -> Path:
    """Return the first folder that holds all eight pickles.

    Raises:
        FileNotFoundError: if there is none; names what the fullest folder lacks and the remedies.
    """
    folders = raw_folders(node_set, root)
    missing = {folder: [file for file in node_set.raw_files if not (folder / file).is_file()] for folder in folders}
    fullest = min(folders, key=lambda folder: len(missing[folder]))
    if not missing[fullest]:
        return fullest
    remedy = (
        f"add the file, or set the data module's `root` to a folder whose graphs/{node_set.name}/raw holds all eight, "
        "or run once on a machine with network access"
    )
    if len(missing[fullest]) == len(node_set.raw_files):
        searched = ", ".join(map(str, folders))
        raise FileNotFoundError(f"{node_set.name} ({', '.join(node_set.raw_files)}) is in none of {searched}: {remedy}")
    without_features = missing[fullest] == [f"ind.{node_set.name}.allx"]
    raise FileNotFoundError(
        f"{', '.join(str(fullest / file) for file in missing[fullest])} is missing"
        + (f": the features of {node_set.name} are not shipped with its graph and labels" if without_features else "")
        + f"; {remedy}"
    )


def read_planetoid(node_set: PlanetoidSet, folder: Path, split_files: list[Path]) -> GraphArrays:
    """Read the pickles with PyTorch Geometric's reader, and the numbered splits from ``split_files``.

    Raises:
        ImportError: without SciPy, whose sparse matrices the pickles hold.
        ValueError: if a file is damaged.
    """
    try:
        import scipy.sparse  # noqa: F401
    except ImportError as error:
        raise ImportError(f"{node_set.name} is stored as SciPy matrices: pip install scipy") from error
    from torch_geometric.io import read_planetoid_data

    try:
        data = read_planetoid_data(str(folder), node_set.name)
    except Exception as error:  # a damaged pickle can raise anything
        raise ValueError(f"{folder} cannot be read ({type(error).__name__}: {error}): replace or remove it") from error
    return GraphArrays(
        features=data.x.numpy(),
        labels=data.y.numpy(),
        edges=data.edge_index.t().numpy(),
        classes=node_set.classes,
        splits=tuple(_read_split(file) for file in split_files),
        public=Masks(data.train_mask.numpy(), data.val_mask.numpy(), data.test_mask.numpy()),
    )


def _read_split(file: Path) -> Masks:
    try:
        with np.load(file) as archive:
            return Masks(*(archive[f"{part}_mask"].astype(bool) for part in ("train", "val", "test")))
    except (OSError, EOFError, ValueError, KeyError) as error:
        raise ValueError(f"{file} cannot be read ({type(error).__name__}: {error}): replace or remove it") from error

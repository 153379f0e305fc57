"""Find, download and read a node-classification set by its name."""

import shutil
from dataclasses import replace
from functools import partial
from pathlib import Path
from urllib.request import urlopen

from datamodules.graphs.catalogue import CATALOGUE, ArchiveSet, PlanetoidSet, address
from datamodules.graphs.graph_arrays import GraphArrays, check_graph
from datamodules.graphs.npz_files import read_edge_list, read_npz
from datamodules.graphs.planetoid_files import find_raw_folder, read_planetoid
from datamodules.graphs.prepare import edge_homophily, prepare_edges
from datamodules.roots import data_folders, find_data, require_data, writable_folder, written_whole


def prepare_node_set(name: str, root: str | Path | None = None, numbered_splits: bool = True) -> None:
    """Make sure that :func:`load_node_set` finds the files, downloading them as a last resort.

    Args:
        name: name of the set.
        root: folder that is searched first and keeps what is downloaded.
        numbered_splits: whether a citation graph needs the ten split files beside its public split.

    Raises:
        FileNotFoundError: if a file is nowhere and the download fails; names it, the folders and the remedies.
        ValueError: if the name is unknown.
    """
    node_set = _listed(name, root)
    if isinstance(node_set, ArchiveSet):
        _require_all(node_set.files, root)
    elif isinstance(node_set, PlanetoidSet):
        _prepare_planetoid(node_set, root)
        if numbered_splits:
            _require_all(node_set.split_files, root)
    else:
        _own_file(name, root)


def load_node_set(name: str, root: str | Path | None = None) -> GraphArrays:
    """Read a set of the catalogue, or the user's own ``.npz``; nothing is downloaded.

    ===================================== =============================================================================
    what                                  where
    ===================================== =============================================================================
    a set in ``.npz`` files               ``graphs/<folder>/<file>`` in ``root`` and the other data folders
    Cora, CiteSeer, PubMed                ``graphs/<name>/raw``; also ``<Name>/raw``, ``root/raw`` and ``root``
    any name, ``root`` ends in ``.npz``   that file
    a name that is not in the catalogue   ``graphs/<name>/<name>.npz`` or ``<name>.npz``
    ===================================== =============================================================================

    Raises:
        FileNotFoundError: if a file is nowhere; names it and the remedies.
        ValueError: if the name is unknown, or the arrays are damaged or do not fit together.
    """
    node_set = _listed(name, root)
    if isinstance(node_set, ArchiveSet):
        graph = _read_archives(node_set, root)
    elif isinstance(node_set, PlanetoidSet):
        folder = find_raw_folder(node_set, root)
        files = [find_data(f"graphs/{file}", root) for file in node_set.split_files]
        graph = read_planetoid(node_set, folder, [file for file in files if file] if all(files) else [])
    else:
        graph = read_npz(_own_file(name, root))
    check_graph(graph, name)
    if node_set and (graph.features.shape, graph.classes) != ((node_set.nodes, node_set.features), node_set.classes):
        raise ValueError(
            f"{name} has {graph.features.shape[0]} nodes, {graph.features.shape[1]} features and {graph.classes} classes, expected "
            f"{node_set.nodes}, {node_set.features} and {node_set.classes}: the files hold another set, replace or remove them"
        )
    return graph


def feature_and_class_counts(name: str, root: str | Path | None = None) -> tuple[int, int]:
    """Return the numbers of features and classes, from the catalogue if it lists the set and else from the file."""
    node_set = _listed(name, root)
    if node_set:
        return node_set.features, node_set.classes
    graph = load_node_set(name, root)
    return graph.features.shape[1], graph.classes


def set_homophily(name: str, root: str | Path | None = None) -> float:
    """Return the fraction of a set's undirected edges, self-loops left out, whose ends have the same label."""
    graph = load_node_set(name, root)
    return edge_homophily(prepare_edges(graph.edges, len(graph.labels)), graph.labels)


def _listed(name: str, root: str | Path | None) -> ArchiveSet | PlanetoidSet | None:
    """Return the entry of the catalogue; None for a file of the user's own."""
    return None if root and Path(root).suffix == ".npz" else CATALOGUE.get(name)


def _own_file(name: str, root: str | Path | None) -> Path:
    if root and Path(root).suffix == ".npz":
        file = Path(root).expanduser()
        if not file.is_file():
            raise FileNotFoundError(f"{file} does not exist: set the data module's `root` to an .npz file or a data folder")
        return file
    found = find_data(f"graphs/{name}/{name}.npz", root) or find_data(f"{name}.npz", root)
    if not found:
        raise ValueError(
            f"name={name!r} is unknown, and neither graphs/{name}/{name}.npz nor {name}.npz is in one of "
            f"{', '.join(map(str, data_folders(root)))}: use {', '.join(CATALOGUE)}, or set `root` to an .npz file of your own"
        )
    return found


def _read_archives(node_set: ArchiveSet, root: str | Path | None) -> GraphArrays:
    graph = read_npz(require_data(f"graphs/{node_set.archive}", root))
    if node_set.edges:
        graph = replace(graph, edges=read_edge_list(require_data(f"graphs/{node_set.edges}", root)))
    if node_set.masks:
        graph = replace(graph, splits=read_npz(require_data(f"graphs/{node_set.masks}", root)).splits)
    return graph


def _require_all(files: tuple[str, ...], root: str | Path | None) -> None:
    for file in files:
        require_data(f"graphs/{file}", root, partial(_download, file))


def _prepare_planetoid(node_set: PlanetoidSet, root: str | Path | None) -> None:
    try:
        find_raw_folder(node_set, root)
    except FileNotFoundError as missing:
        try:
            for file in node_set.raw_files:
                _fetch(f"{node_set.name}/raw/{file}", root)
        except Exception as error:  # whatever a download can raise
            raise FileNotFoundError(f"{missing} (it could not be downloaded: {error})") from error


def _fetch(file: str, root: str | Path | None) -> None:
    """Download ``file`` unless it is in the folder that downloads go to."""
    target = writable_folder(root) / "graphs" / file
    if not target.is_file():
        with written_whole(target) as temporary:
            _download(file, temporary)


def _download(file: str, target: Path) -> None:
    with urlopen(address(file), timeout=60) as response, target.open("wb") as stream:
        shutil.copyfileobj(response, stream)

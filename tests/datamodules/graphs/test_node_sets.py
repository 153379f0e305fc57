from io import BytesIO
from pathlib import Path
from urllib.error import URLError

import numpy as np
import pytest

from datamodules.graphs import node_sets
from datamodules.graphs.catalogue import CATALOGUE, PlanetoidSet, address
from datamodules.graphs.graph_arrays import check_masks
from datamodules.graphs.node_sets import feature_and_class_counts, load_node_set, prepare_node_set, set_homophily
from datamodules.graphs.prepare import prepare_edges
from datamodules.roots import find_data

# nodes, undirected edges without self-loops, features, classes, homophily
TABLE = {
    "actor": (7600, 26659, 932, 5, 0.217),
    "chameleon": (2277, 31371, 2325, 5, 0.230),
    "chameleon_directed": (2277, 31371, 2325, 5, 0.230),
    "chameleon_filtered": (890, 8854, 2325, 5, 0.236),
    "chameleon_filtered_directed": (890, 8854, 2325, 5, 0.236),
    "squirrel": (5201, 198353, 2089, 5, 0.222),
    "squirrel_filtered": (2223, 46998, 2089, 5, 0.207),
    "cornell": (183, 277, 1703, 5, 0.123),
    "cornell_geom": (183, 277, 1703, 5, 0.296),
    "cornell_geom_directed": (183, 277, 1703, 5, 0.296),
    "texas": (183, 279, 1703, 5, 0.061),
    "texas_directed": (183, 279, 1703, 5, 0.061),
    "wisconsin": (251, 450, 1703, 5, 0.178),
    "wisconsin_directed": (251, 450, 1703, 5, 0.178),
    "cora": (2708, 5278, 1433, 7, 0.810),
    "citeseer": (3327, 4552, 3703, 6, 0.736),
}


def on_disk(name: str) -> bool:
    node_set = CATALOGUE[name]
    files = [f"{name}/raw/{file}" for file in node_set.raw_files] if isinstance(node_set, PlanetoidSet) else node_set.files
    return all(find_data(f"graphs/{file}") for file in files)


def needed(name: str) -> None:
    if not on_disk(name):
        pytest.skip(f"{name} is in no data folder: set LEYDEN_DATA to one that holds it")


@pytest.mark.parametrize("name", TABLE)
def test_sizes_and_homophily(name: str):
    needed(name)
    nodes, edges, features, classes, homophily = TABLE[name]
    graph = load_node_set(name)
    assert graph.features.shape == (nodes, features)
    assert graph.features.dtype == np.float32
    assert set(graph.labels) == set(range(classes))
    assert graph.classes == classes
    assert feature_and_class_counts(name) == (features, classes)
    assert len(prepare_edges(graph.edges, nodes)) == 2 * edges
    assert set_homophily(name) == pytest.approx(homophily, abs=5.1e-4)
    assert len(graph.splits) == 10
    for number, masks in enumerate([*graph.splits, *([graph.public] if graph.public else [])]):
        check_masks(masks, nodes, f"split {number}")
        assert not np.stack(masks).all(axis=0).any()


def test_texas_has_a_class_of_one_node():
    needed("texas")
    assert np.bincount(load_node_set("texas").labels).tolist() == [33, 1, 18, 101, 30]


def test_the_two_cornells():
    needed("cornell_geom")
    right, usual, texas = (load_node_set(name) for name in ("cornell", "cornell_geom", "texas"))
    assert (usual.features == texas.features).all()
    assert (usual.labels == texas.labels).all()
    assert np.bincount(right.labels).tolist() == [38, 16, 30, 82, 17]
    assert all((np.stack(one) == np.stack(other)).all() for one, other in zip(right.splits, usual.splits, strict=True))
    assert len(usual.edges) == 298, "the edge list of geom-gcn, with its self-loops"


@pytest.mark.parametrize("name", ["texas", "wisconsin"])
def test_directed_edges_are_those_of_the_undirected_set(name: str):
    needed(f"{name}_directed")
    plain, directed = load_node_set(name), load_node_set(f"{name}_directed")
    one, other = (prepare_edges(graph.edges, len(graph.labels)) for graph in (plain, directed))
    assert (one.source == other.source).all()
    assert (one.target == other.target).all()


def test_splits_of_cora():
    needed("cora")
    cora = load_node_set("cora")
    assert [[int(mask.sum()) for mask in masks] for masks in cora.splits] == [[1192, 796, 497]] * 10
    assert [int(mask.sum()) for mask in cora.public] == [140, 500, 1000]
    covered = np.stack(cora.splits[0]).any(axis=0)
    assert (covered == largest_component(cora)).all()
    assert covered.sum() == 2485


def largest_component(graph) -> np.ndarray:
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    nodes = len(graph.labels)
    matrix = coo_array((np.ones(len(graph.edges)), tuple(graph.edges.T)), shape=(nodes, nodes))
    _, component = connected_components(matrix, directed=False)
    return component == np.bincount(component).argmax()


def test_citeseer_public_split():
    needed("citeseer")
    assert [int(mask.sum()) for mask in load_node_set("citeseer").public] == [120, 500, 1000]


def raw_folder(folder: Path, without: tuple[str, ...] = ()) -> Path:
    folder.mkdir(parents=True)
    for file in CATALOGUE["pubmed"].raw_files:
        if file not in without:
            (folder / file).write_bytes(b"")
    return folder


@pytest.fixture
def nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv("LEYDEN_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))

    def offline(url: str, timeout: float):
        raise URLError("no route to host")

    monkeypatch.setattr(node_sets, "urlopen", offline)
    return tmp_path


def test_pubmed_without_features(nowhere: Path):
    folder = raw_folder(nowhere / "data/graphs/pubmed/raw", without=("ind.pubmed.allx",))
    with pytest.raises(FileNotFoundError, match="the features of pubmed are not shipped") as failure:
        load_node_set("pubmed", nowhere / "data")
    assert str(folder / "ind.pubmed.allx") in str(failure.value)
    assert "root" in str(failure.value)
    with pytest.raises(FileNotFoundError, match="features of pubmed are not shipped.*could not be downloaded.*no route"):
        prepare_node_set("pubmed", nowhere / "data")
    assert not list((nowhere / "data").rglob(".*")), "no half file is left"


def test_missing_files_are_named(nowhere: Path):
    with pytest.raises(FileNotFoundError, match="graphs/texas/texas.npz is in none of .*could not be downloaded.*set LEYDEN_DATA"):
        prepare_node_set("texas", nowhere)
    with pytest.raises(FileNotFoundError, match="graphs/texas/texas.npz is in none of"):
        load_node_set("texas", nowhere)
    with pytest.raises(FileNotFoundError, match="cora .*ind.cora.x.* is in none of .*cache/leyden/graphs/cora/raw"):
        load_node_set("cora")
    (nowhere / "Cora/raw").mkdir(parents=True)
    (nowhere / "Cora/raw/ind.cora.x").write_bytes(b"")
    with pytest.raises(FileNotFoundError, match="Cora/raw/ind.cora.tx, .*is missing;"):
        load_node_set("cora", nowhere)


def test_damaged_pickles_are_named(nowhere: Path):
    raw_folder(nowhere / "raw")
    with pytest.raises(ValueError, match="raw cannot be read .*replace or remove it"):
        load_node_set("pubmed", nowhere)


def test_unknown_name(nowhere: Path):
    with pytest.raises(ValueError, match="name='texass' is unknown.*use actor, chameleon, .*or set `root`"):
        load_node_set("texass")


def archive(**changes) -> dict[str, np.ndarray]:
    masks = np.eye(3, dtype=bool)[:, None, [0, 0, 1, 1, 2, 2]]
    names = ("train_masks", "val_masks", "test_masks")
    arrays = {
        "node_features": np.arange(12, dtype=np.float32).reshape(6, 2),
        "node_labels": np.array([0, 1, 0, 1, 0, 1]),
        "edges": np.array([[0, 1], [1, 2], [3, 4]]),
    }
    return {**arrays, **dict(zip(names, masks, strict=True)), **changes}


def test_own_file(nowhere: Path):
    np.savez(nowhere / "mine.npz", **archive())
    for name, root in (("mine", nowhere), ("anything", nowhere / "mine.npz"), ("texas", nowhere / "mine.npz")):
        prepare_node_set(name, root)
        graph = load_node_set(name, root)
        assert (graph.features == archive()["node_features"]).all()
        assert feature_and_class_counts(name, root) == (2, 2)
        assert [np.flatnonzero(mask).tolist() for mask in graph.splits[0]] == [[0, 1], [2, 3], [4, 5]]
    with pytest.raises(FileNotFoundError, match="yours.npz does not exist"):
        load_node_set("yours", nowhere / "yours.npz")


def test_another_set_under_a_known_name(nowhere: Path):
    (nowhere / "graphs/texas").mkdir(parents=True)
    np.savez(nowhere / "graphs/texas/texas.npz", **archive())
    with pytest.raises(ValueError, match="texas has 6 nodes, 2 features and 2 classes, expected 183, 1703 and 5"):
        load_node_set("texas", nowhere)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"node_features": np.array([[0, np.nan]] + [[0, 0]] * 4 + [[np.inf, np.nan]])}, "3 features that are NaN.*2 of 6 nodes"),
        ({"node_labels": np.array([0, 1, 0, 7, 0, 1])}, r"1 of 6 labels outside 0\.\.2, from 0 to 7"),
        ({"node_labels": np.array([0, 1, 0, -1, -1, 1])}, r"2 of 6 labels outside 0\.\.2, from -1 to 1"),
        ({"num_classes": np.array(1)}, r"3 of 6 labels outside 0\.\.0"),
        ({"node_labels": np.array([0, 1, 0])}, r"features of shape \[6, 2\] and labels of shape \[3\]"),
        ({"node_labels": np.array([0.0, 1, 0, 1, 0, 1])}, "node_labels of .* is float64: expected whole numbers"),
        ({"edges": np.array([[0, 1], [1, 6], [-1, 2]])}, r"2 of 3 edges to nodes outside 0\.\.5"),
        ({"edges": np.array([0, 1, 2])}, r"edges of shape \[3\]: expected \[edges, 2\]"),
        ({"val_masks": np.ones((2, 6), dtype=bool)}, r"val_masks \[2, 6\].*expected three masks of one shape"),
    ],
)
def test_bad_arrays(nowhere: Path, changes: dict, reason: str):
    np.savez(nowhere / "mine.npz", **archive(**changes))
    with pytest.raises(ValueError, match=reason):
        load_node_set("mine", nowhere)


def test_num_classes_may_exceed_the_labels(nowhere: Path):
    np.savez(nowhere / "mine.npz", **archive(num_classes=np.array(5)))
    assert load_node_set("mine", nowhere).classes == 5


def test_damaged_archives(nowhere: Path):
    file = nowhere / "mine.npz"
    np.savez(file, **{key: value for key, value in archive().items() if key not in ("edges", "val_masks")})
    with pytest.raises(ValueError, match="mine.npz has no edges, val_masks, only node_features"):
        load_node_set("mine", nowhere)
    file.write_bytes(b"PK\x03\x04 half a file")
    with pytest.raises(ValueError, match="mine.npz cannot be read .*replace or remove it"):
        load_node_set("mine", nowhere)


def test_damaged_edge_list(nowhere: Path):
    needed_shape = CATALOGUE["texas"]
    folder = nowhere / "graphs/texas"
    folder.mkdir(parents=True)
    nodes = needed_shape.nodes
    np.savez(
        folder / "texas.npz", node_features=np.zeros((nodes, 1703)), node_labels=np.arange(nodes) % 5, edges=np.zeros((1, 2), int)
    )
    (folder / "geom_gcn_edges.txt").write_text("node_id\tnode_id\n0\t1\n1\ttwo\n")
    with pytest.raises(ValueError, match="geom_gcn_edges.txt is not a list of edges"):
        load_node_set("texas_directed", nowhere)
    (folder / "geom_gcn_edges.txt").write_text("node_id\tnode_id\n0\t1\n1\t2\n")
    assert load_node_set("texas_directed", nowhere).edges.tolist() == [[0, 1], [1, 2]]


def test_download(nowhere: Path, monkeypatch: pytest.MonkeyPatch):
    asked: list[str] = []

    def served(url: str, timeout: float) -> BytesIO:
        asked.append(url)
        return BytesIO(b"bytes of " + url.encode())

    monkeypatch.setattr(node_sets, "urlopen", served)
    prepare_node_set("cornell_geom", nowhere)
    assert [url.rpartition("/")[2] for url in asked] == ["texas.npz", "out1_graph_edges.txt", "cornell.npz"]
    assert all(url.startswith("https://raw.githubusercontent.com/") for url in asked)
    assert (nowhere / "graphs/cornell/geom_gcn_edges.txt").read_bytes().endswith(b"/new_data/cornell/out1_graph_edges.txt")
    asked.clear()
    prepare_node_set("cornell_geom", nowhere)
    prepare_node_set("pubmed", nowhere, numbered_splits=False)
    assert [url.rpartition("/")[2] for url in asked] == list(CATALOGUE["pubmed"].raw_files)
    asked.clear()
    prepare_node_set("pubmed", nowhere)
    assert len(asked) == 10
    assert sorted(path.name for path in (nowhere / "graphs/pubmed/raw").iterdir()) == sorted(CATALOGUE["pubmed"].raw_files)


def test_addresses():
    assert address("chameleon/chameleon_filtered.npz").endswith("/data/chameleon_filtered.npz")
    assert address("cora/raw/ind.cora.test.index").endswith("/data/ind.cora.test.index")
    assert address("cora/geom_gcn_splits/cora_split_0.6_0.2_3.npz").endswith("/splits/cora_split_0.6_0.2_3.npz")

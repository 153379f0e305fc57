"""Which node-classification sets there are, of what size, and of which files each is made."""

from dataclasses import dataclass

YANDEX = "https://raw.githubusercontent.com/yandex-research/heterophilous-graphs/a431395582e929d88271309716bea4fe24ce6318/data"
GEOM_GCN = "https://raw.githubusercontent.com/graphdml-uiuc-jlu/geom-gcn/f1fc0d14b3b019c562737240d06ec83b07d16a8f"
PLANETOID = "https://raw.githubusercontent.com/kimiyoung/planetoid/af6abf468a772cc055bec88c52e4d6f51b7c37e3/data"

EDGE_LIST = "geom_gcn_edges.txt"
PARTS = ("x", "tx", "allx", "y", "ty", "ally", "graph", "test.index")


@dataclass(frozen=True)
class ArchiveSet:
    """A set in ``.npz`` files; paths are those below ``graphs/``.

    Attributes:
        nodes: number of nodes.
        features: number of features.
        classes: number of classes.
        archive: file of features, labels, edges and masks.
        edges: edge list that replaces the edges of ``archive``.
        masks: file whose masks replace those of ``archive``.
    """

    nodes: int
    features: int
    classes: int
    archive: str
    edges: str | None = None
    masks: str | None = None

    @property
    def files(self) -> tuple[str, ...]:
        """All files that it is made of."""
        return tuple(file for file in (self.archive, self.edges, self.masks) if file)


@dataclass(frozen=True)
class PlanetoidSet:
    """A citation graph in the pickles ``ind.<name>.<part>``, with geom-gcn's ten split files beside them if they are there."""

    nodes: int
    features: int
    classes: int
    name: str

    @property
    def raw_files(self) -> tuple[str, ...]:
        """Names of the pickles, all in one folder ``raw``."""
        return tuple(f"ind.{self.name}.{part}" for part in PARTS)

    @property
    def split_files(self) -> tuple[str, ...]:
        """Paths of the split files below ``graphs/``."""
        return tuple(f"{self.name}/geom_gcn_splits/{self.name}_split_0.6_0.2_{number}.npz" for number in range(10))


CATALOGUE: dict[str, ArchiveSet | PlanetoidSet] = {
    "actor": ArchiveSet(7600, 932, 5, "actor/actor.npz"),
    "chameleon": ArchiveSet(2277, 2325, 5, "chameleon/chameleon.npz"),
    "chameleon_directed": ArchiveSet(2277, 2325, 5, "chameleon/chameleon_directed.npz"),
    "chameleon_filtered": ArchiveSet(890, 2325, 5, "chameleon/chameleon_filtered.npz"),
    "chameleon_filtered_directed": ArchiveSet(890, 2325, 5, "chameleon/chameleon_filtered_directed.npz"),
    "squirrel": ArchiveSet(5201, 2089, 5, "squirrel/squirrel.npz"),
    "squirrel_directed": ArchiveSet(5201, 2089, 5, "squirrel/squirrel_directed.npz"),
    "squirrel_filtered": ArchiveSet(2223, 2089, 5, "squirrel/squirrel_filtered.npz"),
    "squirrel_filtered_directed": ArchiveSet(2223, 2089, 5, "squirrel/squirrel_filtered_directed.npz"),
    "cornell": ArchiveSet(183, 1703, 5, "cornell/cornell.npz"),
    "cornell_geom": ArchiveSet(183, 1703, 5, "texas/texas.npz", edges=f"cornell/{EDGE_LIST}", masks="cornell/cornell.npz"),
    "cornell_geom_directed": ArchiveSet(183, 1703, 5, "texas/texas.npz", edges=f"cornell/{EDGE_LIST}", masks="cornell/cornell.npz"),
    "texas": ArchiveSet(183, 1703, 5, "texas/texas.npz"),
    "texas_directed": ArchiveSet(183, 1703, 5, "texas/texas.npz", edges=f"texas/{EDGE_LIST}"),
    "wisconsin": ArchiveSet(251, 1703, 5, "wisconsin/wisconsin.npz"),
    "wisconsin_directed": ArchiveSet(251, 1703, 5, "wisconsin/wisconsin.npz", edges=f"wisconsin/{EDGE_LIST}"),
    "cora": PlanetoidSet(2708, 1433, 7, "cora"),
    "citeseer": PlanetoidSet(3327, 3703, 6, "citeseer"),
    "pubmed": PlanetoidSet(19717, 500, 3, "pubmed"),
}


def is_directed(name: str) -> bool:
    """Whether the edges of the set have a direction: its name says so."""
    return name.endswith("_directed")


def address(file: str) -> str:
    """Return where ``file``, a path below ``graphs/``, can be downloaded, at one fixed commit."""
    folder, _, rest = file.partition("/")
    if rest == EDGE_LIST:
        return f"{GEOM_GCN}/new_data/{folder}/out1_graph_edges.txt"
    if rest.startswith("geom_gcn_splits/"):
        return f"{GEOM_GCN}/splits/{rest.partition('/')[2]}"
    if rest.startswith("raw/"):
        return f"{PLANETOID}/{rest.partition('/')[2]}"
    return f"{YANDEX}/{rest}"

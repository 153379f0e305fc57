"""Texts by their names, and how a text is split into training, validation and test."""

from dataclasses import dataclass
from pathlib import Path

from datamodules.roots import find_data, require_data

DOCUMENT_BREAK = "\f"
JOINT = "\n"


@dataclass(frozen=True)
class TextFile:
    """A text in a data folder.

    Attributes:
        path: file, as it is called in a data folder.
        fetch_name: what ``python -m datamodules.fetch`` calls it.
        titles: names of its documents, in their order.
        val: default validation split.
        test: default test split.
    """

    path: str
    fetch_name: str
    titles: tuple[str, ...] = ()
    val: float | str = 0.05
    test: float | str = 0.05


FILES = {
    "shakespeare": TextFile("text/tinyshakespeare.txt", "shakespeare"),
    "plays": TextFile("text/shakespeare_plays.txt", "plays"),
    "austen": TextFile(
        "text/austen.txt",
        "austen",
        titles=("emma", "mansfieldpark", "northangerabbey", "persuasion", "prideprejudice", "sensesensibility"),
        val="persuasion",
        test="northangerabbey",
    ),
}


def load_corpus(source: str, root: str | Path | None = None) -> dict[str, str]:
    """Read a text as documents by their titles, in their order; nothing is downloaded.

    =========== ======================================================================================================
    source      what is read
    =========== ======================================================================================================
    topics      the help topics of the Python that runs (``pydoc_data.topics``): always there, another text in each version
    shakespeare ``text/tinyshakespeare.txt``, one document
    plays       ``text/shakespeare_plays.txt``, one document
    austen      ``text/austen.txt``, six novels
    a path      a UTF-8 file of the user's own, also looked for in the data folders; form feeds separate its documents, which are
                called document0, document1, …
    =========== ======================================================================================================

    Args:
        source: name or path.
        root: folder that is searched first.

    Raises:
        FileNotFoundError: if the text is nowhere; names the remedies.
        ValueError: if the file is not UTF-8, is empty, or does not hold the documents that its name promises.
    """
    if source == "topics":
        from pydoc_data.topics import topics

        return dict(topics)
    known = FILES.get(source)
    file = require_data(known.path, root, fetch_name=known.fetch_name) if known else _own_file(source, root)
    try:
        documents = file.read_text(encoding="utf-8").split(DOCUMENT_BREAK)
    except UnicodeDecodeError as error:
        raise ValueError(f"{file} is not UTF-8 text ({error}): convert it, for example with iconv") from error
    if not any(document.strip() for document in documents):
        raise ValueError(f"{file} holds no text")
    titles = known.titles if known and known.titles else tuple(f"document{i}" for i in range(len(documents)))
    if len(titles) != len(documents):
        raise ValueError(f"{file} holds {len(documents)} documents, expected {', '.join(titles)}: replace or remove it")
    return dict(zip(titles, documents, strict=True))


def split_corpus(documents: dict[str, str], val: float | str, test: float | str) -> dict[str, str]:
    """Hold out whole documents by their titles, or the end of the text by its share.

    Args:
        documents: texts by titles.
        val: title of the validation document, or the share of characters that is cut from the end for it.
        test: the same for the test. With two shares validation comes before the test; 0 stands for no test.

    Returns:
        ``train``, ``val`` and ``test``: the documents of each, joined by a newline.

    Raises:
        ValueError: if a title is unknown or taken already, the shares reach 1 in sum, or a split is left without text.
    """
    rest = dict(documents)
    splits: dict[str, str] = {}
    shares = {"val": 0.0, "test": 0.0}
    for name, chosen in (("val", val), ("test", test)):
        if not isinstance(chosen, str):
            shares[name] = chosen
        elif chosen in rest:
            splits[name] = rest.pop(chosen)
        else:
            raise ValueError(f"{name}={chosen!r} is no document that is left, choose one of {_some(rest)}, or a share such as 0.05")
    if min(shares.values()) < 0 or sum(shares.values()) >= 1:
        raise ValueError(f"the shares val={val} and test={test} must not be negative and must leave something for training")
    text = JOINT.join(rest.values())
    sizes = {name: round(share * len(text)) for name, share in shares.items()}
    ends = {"val": len(text) - sizes["test"], "test": len(text)}
    splits = {name: text[end - sizes[name] : end] for name, end in ends.items()} | splits
    text = text[: len(text) - sum(sizes.values())]
    splits["train"] = text
    for name in ("train", "val"):
        if not splits[name]:
            raise ValueError(f"val={val} and test={test} leave no text for {name}")
    return splits


def _own_file(source: str, root: str | Path | None) -> Path:
    file = Path(source).expanduser()
    found = file if file.is_file() else find_data(source, root)
    if found is None or not found.is_file():
        raise FileNotFoundError(
            f"source={source!r} is neither a file nor one of topics, {', '.join(FILES)}: give the path of a UTF-8 text file"
        )
    return found


def _some(documents: dict[str, str]) -> str:
    titles = list(documents)
    return ", ".join(titles[:10]) + (", …" if len(titles) > 10 else "")

import gzip
import struct
import subprocess
import zlib
from dataclasses import replace
from hashlib import sha256
from pathlib import Path

import pytest

from datamodules import fetch, fetch_clients
from datamodules.fetch_r_data import read_lazy_data


def integers(*values: int) -> bytes:
    return struct.pack(f">{len(values)}i", *values)


def characters(text: str | None, latin: bool = False) -> bytes:
    if text is None:
        return integers(9, -1)
    content = text.encode("latin-1" if latin else "utf-8")
    return integers(9 | (0x4000 if latin else 0x8000), len(content)) + content


def strings(*items: bytes, flags: int = 0) -> bytes:
    return integers(16 | flags, len(items)) + b"".join(items)


def named(kind: int, items: list[bytes], names: list[str], again: bool = False) -> bytes:
    """A list whose attribute ``names`` is a tagged pair; ``again`` refers to the symbol written before."""
    tag = integers(0x1FF) if again else integers(1) + characters("names")
    pairs = integers(0x402) + tag + strings(*map(characters, names)) + integers(254)
    return integers(kind | 0x200, len(items)) + b"".join(items) + pairs


def serialised(item: bytes, version: int = 3) -> bytes:
    encoding = integers(5) + b"UTF-8" if version == 3 else b""
    return b"X\n" + integers(version, 0x40300, 0x30500) + encoding + item


def lazy_data(objects: dict[str, bytes]) -> list[bytes]:
    """Database and index of a package."""
    database, places = b"junk", []
    for content in objects.values():
        chunk = integers(len(content)) + zlib.compress(content)
        places.append(integers(13, 2, len(database), len(chunk)))
        database += chunk
    variables = named(19, places, list(objects))
    index = named(19, [variables, integers(10, 1, 1)], ["variables", "compressed"], again=True)
    return [database, gzip.compress(serialised(index), mtime=0)]


BOOKS = {
    "second": serialised(strings(characters("It was"), characters(""), characters("café"))),
    "first": serialised(strings(characters("naïve", latin=True), characters(None)), version=2),
}


def test_character_vectors_are_read_by_name():
    books = read_lazy_data(*lazy_data(BOOKS))
    assert books == {"second": ["It was", "", "café"], "first": ["naïve", None]}


def test_other_objects_are_refused():
    with pytest.raises(ValueError, match="type 14"):
        read_lazy_data(*lazy_data({"numbers": serialised(integers(14, 0))}))
    with pytest.raises(ValueError, match="version 4"):
        read_lazy_data(*lazy_data({"newer": serialised(strings(), version=4)}))
    with pytest.raises(ValueError, match="XDR"):
        read_lazy_data(*lazy_data({"ascii": b"A\n3\n"}))


def test_novels_are_fetched_from_the_debian_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture):
    members = lazy_data(
        {"emma": serialised(strings(characters("Emma"), characters("—"))), "abbey": serialised(strings(characters("A")))}
    )

    def run(command: list[str], cwd: Path, **options) -> subprocess.CompletedProcess:
        if command[1] == "download":
            (cwd / "r-cran-janeaustenr_1_all.deb").write_bytes(b"")
        else:
            folder = cwd / "content" / "usr/lib/R/site-library/janeaustenr/data"
            folder.mkdir(parents=True)
            for name, content in zip(("Rdata.rdb", "Rdata.rdx", "Rdata.rds"), [*members, b"no"], strict=True):
                (folder / name).write_bytes(content)
        return subprocess.CompletedProcess(command, 0, "", "")

    monkeypatch.setattr(fetch_clients.shutil, "which", lambda name: f"/usr/bin/{name}")
    monkeypatch.setattr(subprocess, "run", run)
    recipe = replace(fetch.RECIPES["austen"], checksum=sha256(b"".join(members)).hexdigest())
    monkeypatch.setitem(fetch.RECIPES, "austen", recipe)
    assert fetch.main(["--what", "austen", "--to", str(tmp_path)]) == 0
    assert (tmp_path / "text" / "austen.txt").read_bytes() == "A\fEmma\n—".encode()
    assert "public domain" in capsys.readouterr().out

"""Character vectors out of an R package's data, without R."""

import gzip
import struct
import zlib
from pathlib import Path
from typing import Any

BOOK_BREAK = "\f"

SYMBOL, PAIRS, CHARACTERS, LOGICALS, INTEGERS, STRINGS, LIST, REFERENCE, END = 1, 2, 9, 10, 13, 16, 19, 255, 254
HAS_ATTRIBUTES, HAS_TAG = 0x200, 0x400


def write_books(members: list[bytes], target: Path) -> None:
    """Write an R package's character vectors as UTF-8 text, in the order of their names.

    Each vector is a book whose elements are its lines; books are separated by a form feed.

    Args:
        members: the package's ``Rdata.rdb`` and ``Rdata.rdx``.
        target: the text file.
    """
    books = read_lazy_data(*members)
    target.write_text(BOOK_BREAK.join("\n".join(books[name]) for name in sorted(books)), encoding="utf-8", newline="")


def read_lazy_data(database: bytes, index: bytes) -> dict[str, Any]:
    """Read the objects of a lazy-load database by their names.

    The index is a gzipped list whose ``variables`` hold offset and length of each object in the database; there it is stored as
    4 bytes of length, big-endian, and a zlib stream.

    Raises:
        ValueError: if an object is of a kind that is not read here, or is compressed otherwise.
    """
    variables = _Reader(gzip.decompress(index)).whole()["variables"]
    return {
        name: _Reader(zlib.decompress(database[offset + 4 : offset + length])).whole()
        for name, (offset, length) in variables.items()
    }


class _Reader:
    """Reads R's serialisation format in its big-endian binary form ("XDR"), versions 2 and 3."""

    def __init__(self, content: bytes) -> None:
        self.content, self.position = content, 0
        self.symbols: list[Any] = []

    def whole(self) -> Any:
        if self._bytes(2) != b"X\n":
            raise ValueError("the R object is not in the binary format XDR")
        version = self._integers(3)[0]
        if version == 3:
            self._bytes(self._integer())  # name of the native encoding
        elif version != 2:
            raise ValueError(f"the R object has the serialisation version {version}, only 2 and 3 are read")
        return self._item()

    def _item(self) -> Any:
        flags = self._integer()
        kind = flags & 0xFF
        if kind == END:
            return None
        if kind == SYMBOL:
            self.symbols.append(self._item())
            return self.symbols[-1]
        if kind == REFERENCE:
            return self.symbols[(flags >> 8) - 1]
        if kind == PAIRS:
            return self._pairs(flags)
        if kind == CHARACTERS:
            length = self._integer()
            return None if length == -1 else self._bytes(length).decode("latin-1" if flags & 0x4000 else "utf-8")
        if kind in (LOGICALS, INTEGERS):
            value: Any = self._integers(self._integer())
        elif kind in (STRINGS, LIST):
            value = [self._item() for _ in range(self._integer())]
        else:
            raise ValueError(f"the R object holds the type {kind}, only text, integers and lists are read")
        names = (self._item() or {}).get("names") if flags & HAS_ATTRIBUTES else None
        return value if names is None else dict(zip(names, value, strict=True))

    def _pairs(self, flags: int) -> dict[str | None, Any]:
        """Read a linked list of tagged values."""
        pairs: dict[str | None, Any] = {}
        while flags & 0xFF == PAIRS:
            if flags & HAS_ATTRIBUTES:
                self._item()
            tag = self._item() if flags & HAS_TAG else None
            pairs[tag] = self._item()
            flags = self._integer()
        return pairs

    def _bytes(self, length: int) -> bytes:
        self.position += length
        return self.content[self.position - length : self.position]

    def _integer(self) -> int:
        return self._integers(1)[0]

    def _integers(self, count: int) -> tuple[int, ...]:
        return struct.unpack(f">{count}i", self._bytes(4 * count))

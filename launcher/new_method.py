"""Begin a method: ``python -m launcher.new_method NAME`` writes the files of docs/add_a_method.md under a name of your own."""

import argparse
import keyword
import re
import sys
from collections.abc import Sequence
from pathlib import Path

from launcher.errors import UserError
from launcher.paths import PROJECT

EXAMPLE, EXAMPLE_CLASS = "ridge", "Ridge"
"""What the method of the page is called; the only place that knows its name."""

BLOCK = re.compile(r"^```\w+\n(?:# |<!-- )(\S+)(?: -->)?\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LONGEST_NAME = 24
TABLES = "lightning_modules/__init__.py", "datamodules/__init__.py", "pyproject.toml", "tests/support/short_runs.py"
"""What names every method."""


def new_method(name: str, data: str | None = None, project: Path = PROJECT) -> list[Path]:
    """Write the files of a method and enter it in tables and contracts, all or nothing; return what was written or changed.

    Args:
        name: name of its folder.
        data: class of the data, ``datamodules.<class>``; None writes a data module too.
        project: the checkout.

    Raises:
        UserError: if the name is no name of a module or is taken, or there are no such data.
    """
    files = skeleton(name, project)
    own_data = f"datamodules/{name}_points.py"
    if data:
        check_data(data, project)
        del files[own_data]
        config = f"configs/{name}/plane.yaml"
        files[config] = files[config].replace(f"datamodules.{class_name(name)}PointsDataModule", data)
    taken = [f"lightning_modules/{name}", f"lightning_modules/{name}.py", f"configs/{name}", *files]
    for path in taken:
        if (project / path).exists():
            raise UserError(f"{path} exists: choose another name than {name}")
    files |= entered(name, project, own_data in files)
    write_all({project / path: text for path, text in files.items()})
    return [Path(path) for path in files]


def class_name(name: str) -> str:
    """Return the name in the spelling of classes: ``f_dpm`` is ``FDpm``."""
    return "".join(word.capitalize() for word in name.split("_"))


def skeleton(name: str, project: Path) -> dict[str, str]:
    """Return the files of the page with its example called ``name``, by path.

    Raises:
        UserError: if ``name`` is no name for a module, or the page is not there.
    """
    if not re.fullmatch(r"[a-z][a-z0-9]*(_[a-z0-9]+)*", name) or keyword.iskeyword(name) or len(name) > LONGEST_NAME:
        raise UserError(f"'{name}' is no name for a method: use small letters, digits and single _, {LONGEST_NAME} at most")
    page = project / "docs" / "add_a_method.md"
    if not page.is_file():
        raise UserError(f"{page} is missing: a method is begun in a checkout of the repository")
    title = class_name(name)
    files = {f"lightning_modules/{name}/__init__.py": f'"""{title}."""\n'}
    for path, text in BLOCK.findall(page.read_text()):
        files[renamed(path, name)] = renamed(text, name)
    return files


def renamed(text: str, name: str) -> str:
    """Call the example ``name``."""
    return text.replace(EXAMPLE, name).replace(EXAMPLE_CLASS, class_name(name))


def check_data(data: str, project: Path) -> None:
    """Raise a UserError if there is no class ``data`` in ``datamodules``."""
    names = re.findall(r'"((?!Leyden)\w+DataModule)"', (project / "datamodules" / "__init__.py").read_text())
    if data not in [f"datamodules.{name}" for name in names]:
        raise UserError(f"there is no {data}: --data takes datamodules.<class>, one of {', '.join(names)}")


def entered(name: str, project: Path, own_data: bool) -> dict[str, str]:
    """Return the tables, contracts and tests that name every method, with the new one, by path.

    Raises:
        UserError: if another method has a class of the same name, or a table is not where it should be.
    """
    title = class_name(name)
    modules, data, contracts, runs = TABLES
    texts = {path: (project / path).read_text() for path in TABLES}
    if f'"{title}Module"' in texts[modules]:
        raise UserError(f"{modules} has a {title}Module: choose another name than {name}")

    def enter(path: str, entry: str, *landmarks: str) -> None:
        try:
            texts[path] = with_entry(texts[path], entry, landmarks)
        except ValueError as error:
            raise UserError(f"{path} has no list after {' and '.join(landmarks)}") from error

    enter(modules, f'"{name}.module": ["{title}Module"]', "submod_attrs={")
    if own_data:
        enter(data, f'"{name}_points": ["{title}PointsDataModule"]', "submod_attrs={")
    enter(contracts, f'"lightning_modules.{name}"', "No method imports another method", "modules = [")
    enter(contracts, f'"lightning_modules.{name}"', "Shared rooms import no method", "forbidden_modules = [")
    enter(contracts, f'"lightning_modules.{name}.{name}"', "The mathematics imports no Lightning", "source_modules = [")
    enter(runs, f'"{name}": ["--config", CONFIGS / "{name}/plane.yaml", *TINY]', "SHORT_RUNS:", "= {")
    return texts


def with_entry(text: str, entry: str, landmarks: Sequence[str]) -> str:
    """Return ``text`` with one more entry in a list, before the first that is greater.

    Args:
        text: a file.
        entry: the entry, without a comma.
        landmarks: what stands before the list, one after the other; the last ends with its bracket. Entries have a line each, or
            are all on the line of the bracket.

    Raises:
        ValueError: if there is no such list.
    """
    start = 0
    for landmark in landmarks:
        start = text.index(landmark, start) + len(landmark)
    if text[start] == "\n":
        start += 1
        indent = len(text[start:]) - len(text[start:].lstrip(" "))
        entry, separator = " " * indent + entry + ",", "\n"
        closing = re.compile(r"\n *[]}]").search(text, start)
        end = closing.start() if closing else len(text)
    else:
        end, separator = text.index("]", start), ", "
    old = text[start:end].split(separator)
    place = next((place for place, other in enumerate(old) if other > entry), len(old))
    return text[:start] + separator.join([*old[:place], entry, *old[place:]]) + text[end:]


def write_all(texts: dict[Path, str]) -> None:
    """Write all files; if one cannot be written, leave everything as it was."""
    olds = {path: path.read_text() if path.exists() else None for path in texts}
    new_folders = {folder for path in texts for folder in path.parents if not folder.exists()}
    begun = []
    try:
        for path, text in texts.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            begun.append(path)
            path.write_text(text)
    except BaseException:
        for path in begun:
            old = olds[path]
            if old is None:
                path.unlink(missing_ok=True)
            else:
                path.write_text(old)
        for folder in sorted(new_folders, reverse=True):
            if folder.is_dir():
                folder.rmdir()
        raise


def main(words: Sequence[str] | None = None) -> int:
    """Run the command line; return 0, or 2 for a mistake of the user."""
    parser = argparse.ArgumentParser(
        prog="python -m launcher.new_method", description="Begin a method; docs/add_a_method.md explains."
    )
    parser.add_argument("name", help="name of its folder, such as sheaf_admm")
    parser.add_argument("--data", help="take these data, such as datamodules.SudokuDataModule, instead of writing a data module")
    options = parser.parse_args(words)
    try:
        paths = new_method(options.name, options.data)
    except (UserError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    print("\n".join(map(str, paths)))
    print(f"\nIt runs:    python train.py --config configs/{options.name}/plane.yaml")
    print("Go on with: docs/add_a_method.md")
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""Write docs/api.md: what the three packages offer, from their docstrings and signatures, without importing them.

``python docs/build_api.py`` writes the page, ``--check`` only says whether it is up to date.
"""

import ast
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from itertools import groupby
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[1]
PAGE = PROJECT / "docs" / "api.md"
PACKAGES = {
    "lightning_modules": "The methods: what `model.class_path` names, and the parts that are of use elsewhere.",
    "datamodules": "The data: what `data.class_path` names.",
    "callbacks": "What watches or steers a run: what `trainer.callbacks` names.",
}
HEAD = """\
# Public API

What `lightning_modules`, `datamodules` and `callbacks` export. In Python: `from datamodules import MazeDataModule`; in a config:
`class_path: datamodules.MazeDataModule`, with the arguments below as `init_args`.

Written by `python docs/build_api.py` from the docstrings: change them, not this page.
"""

Definition = ast.ClassDef | ast.FunctionDef


@dataclass(frozen=True)
class Found:
    """A class or function and the file that defines it."""

    path: Path
    node: Definition

    @property
    def doc(self) -> str:
        return ast.get_docstring(self.node) or ""

    @property
    def summary(self) -> str:
        return marked(" ".join(self.doc.partition("\n\n")[0].split()))


@dataclass(frozen=True)
class Argument:
    """One line of a table."""

    name: str
    annotation: str
    default: str | None
    meaning: str

    def row(self) -> str:
        typed = f"{self.name}: {self.annotation}" if self.annotation else self.name
        code = typed if self.default is None else f"{typed} = {self.default}"
        return f"| `{piped(code)}` | {piped(self.meaning)} |"


def piped(text: str) -> str:
    """Escape the bars, which would end a cell."""
    return text.replace("|", r"\|")


def marked(text: str) -> str:
    """Turn the marks of a docstring into those of a page: roles and double backticks."""
    text = re.sub(r":math:`([^`]+)`", r"$\1$", text)
    text = re.sub(r":\w+:`~?(?:[\w.]*\.)?([^`.]+)`", r"`\1`", text)
    return text.replace("``", "`")


@cache
def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


def source_file(module: str) -> Path | None:
    """Return the file of a module of the project, or None."""
    stem = PROJECT.joinpath(*module.split("."))
    return next((path for path in (stem.with_suffix(".py"), stem / "__init__.py") if path.is_file()), None)


def statement(path: Path, name: str) -> tuple[Path, ast.stmt] | None:
    """Find what a name of a file's top level stands for, through imports within the project."""
    for node in tree(path).body:
        if isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                if name == (alias.asname or alias.name):
                    other = source_file(node.module)
                    return statement(other, alias.name) if other else None
        elif isinstance(node, ast.ClassDef | ast.FunctionDef):
            if node.name == name:
                return path, node
        elif isinstance(node, ast.Assign) and any(isinstance(to, ast.Name) and to.id == name for to in node.targets):
            return path, node
    return None


def definition(path: Path, name: str) -> Found | None:
    found = statement(path, name)
    return Found(found[0], found[1]) if found and isinstance(found[1], ast.ClassDef | ast.FunctionDef) else None


def table(package: str) -> dict[str, list[str]]:
    """Return the table of lazy names of a package: names by submodule."""
    for node in ast.walk(tree(PROJECT / package / "__init__.py")):
        if isinstance(node, ast.keyword) and node.arg == "submod_attrs":
            return ast.literal_eval(node.value)
    raise SystemExit(f"{package}/__init__.py has no table submod_attrs")


def bases(found: Found) -> Iterator[Found]:
    """Yield a class and its bases within the project, nearest first."""
    yield found
    for base in found.node.bases if isinstance(found.node, ast.ClassDef) else ():
        name = base.value if isinstance(base, ast.Subscript) else base
        if isinstance(name, ast.Name) and (above := definition(found.path, name.id)):
            yield from bases(above)


def entries(doc: str) -> dict[str, str]:
    """Return the lines of the sections ``Args`` and ``Attributes`` of a docstring by name."""
    lines: dict[str, str] = {}
    for section in re.findall(r"^(?:Args|Attributes):\n((?:(?: {4}.*)?(?:\n|$))+)", doc, flags=re.MULTILINE):
        for names, text in re.findall(r"^ {4}([*\w, ]+): (.*(?:\n {5,}.*)*)", section, flags=re.MULTILINE):
            meaning = marked(" ".join(text.split())).replace("see above", "see its docstring")
            lines |= dict.fromkeys((name.strip("* ") for name in names.split(",")), meaning)
    return lines


def is_dataclass(node: Definition) -> bool:
    return any("dataclass" in ast.unparse(decorator) for decorator in node.decorator_list)


def signature(found: Found) -> tuple[Found, list[tuple[str, ast.expr | None, ast.expr | None]]]:
    """Return the arguments of a class or function with annotation and default, and the definition that takes them."""
    for owner in bases(found):
        if isinstance(owner.node, ast.FunctionDef):
            return owner, parameters(owner.node)
        if own := next((node for node in owner.node.body if isinstance(node, ast.FunctionDef) and node.name == "__init__"), None):
            return owner, parameters(own)[1:]
        if is_dataclass(owner.node):
            fields = [node for node in owner.node.body if isinstance(node, ast.AnnAssign)]
            return owner, [(ast.unparse(node.target), node.annotation, node.value) for node in fields]
    return found, []


def parameters(function: ast.FunctionDef) -> list[tuple[str, ast.expr | None, ast.expr | None]]:
    arguments = function.args
    positional = [*arguments.posonlyargs, *arguments.args]
    defaults = [None] * (len(positional) - len(arguments.defaults)) + arguments.defaults
    pairs = [*zip(positional, defaults, strict=True), *zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)]
    found = [(argument.arg, argument.annotation, default) for argument, default in pairs]
    for stars, rest in (("*", arguments.vararg), ("**", arguments.kwarg)):
        if rest:
            found.append((stars + rest.arg, rest.annotation, None))
    return found


class Spelled(ast.NodeTransformer):
    """Replace the names of literals, such as ``Mode = Literal["soft", "hard"]`` or ``SIZE = 28``, by what they stand for."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def visit_Name(self, node: ast.Name) -> ast.expr:
        found = statement(self.path, node.id)
        if not found or not isinstance(found[1], ast.Assign):
            return node
        value = found[1].value
        if isinstance(value, ast.Constant | ast.UnaryOp) or (
            isinstance(value, ast.Subscript) and ast.unparse(value.value) == "Literal"
        ):
            return value
        return node


def spelled(path: Path, node: ast.expr | None) -> str | None:
    if node is None:
        return None
    text = ast.unparse(Spelled(path).visit(ast.parse(ast.unparse(node), mode="eval").body))
    return re.sub(r"Literal\[([^\]]+)\]", lambda match: match[1].replace(", ", " | "), text)


def arguments(found: Found, missing: list[str]) -> list[Argument]:
    """Return the arguments of a class or function; what has no line in a docstring is added to ``missing``.

    Only ``**kwargs`` without a line are passed over: a base class outside the project takes them.
    """
    owner, listed = signature(found)
    meanings: dict[str, str] = {}
    for above in reversed([*bases(found)]):
        meanings |= entries(above.doc)
    rows = []
    for name, annotation, default in listed:
        meaning = meanings.get(name.strip("*"))
        if meaning is None and name == "**kwargs":
            continue
        if meaning is None:
            missing.append(f"{owner.path.relative_to(PROJECT)}: {found.node.name} does not say what {name} is")
        elif not name.startswith("**"):
            rows.append(Argument(name, spelled(owner.path, annotation) or "", spelled(owner.path, default), meaning))
        else:
            rows.append(Argument(name, "", None, meaning))
    return rows


def shared_options(found: Found) -> Found | None:
    """Return the class whose arguments a class takes as its ``**options``."""
    match = re.search(r"^ {4}\*\*\w+: those of :class:`(\w+)`", found.doc, flags=re.MULTILINE)
    return definition(found.path, match[1]) if match else None


def section(found: Found, missing: list[str]) -> str:
    """Return the part of the page about one name."""
    file = found.path.relative_to(PROJECT).as_posix()
    if not found.doc:
        missing.append(f"{file}: {found.node.name} has no docstring")
    text = f"### {found.node.name}\n\n{found.summary} [{file}](../{file})\n"
    rows = [argument.row() for argument in arguments(found, missing)]
    shared = shared_options(found)
    if shared:
        name = shared.node.name
        rows = [row.replace(f"`{name}`", f"[{name}](#{name.lower()})") for row in rows]
    if not rows:
        return text
    count = "1 argument" if len(rows) == 1 else f"{len(rows)} arguments"
    opened = f"<details><summary>{count}</summary>\n"
    return "\n".join([text, opened, "| argument | meaning |", "| --- | --- |", *rows, "\n</details>\n"])


def exported(package: str, missing: list[str]) -> list[Found]:
    """Return what a package exports, each followed by the base class whose options it takes; folder by folder."""
    everything: list[Found] = []
    for submodule, names in table(package).items():
        path = source_file(f"{package}.{submodule}")
        for name in names:
            found = definition(path, name) if path else None
            if found is None:
                missing.append(f"{package}/__init__.py: there is no {name} in {submodule}")
            while found and found not in everything:
                if any(found.node.name == other.node.name for other in everything):
                    missing.append(f"{package}/__init__.py: two definitions are called {name}")
                everything.append(found)
                found = shared_options(found)
    return sorted(everything, key=lambda found: folder(found, package))


def folder(found: Found, package: str) -> str:
    """Return the folder of a definition within its package, empty for a file of the package itself."""
    parts = found.path.relative_to(PROJECT / package).parts
    return parts[0] if len(parts) > 1 else ""


def page() -> str:
    """Return the text of docs/api.md.

    Raises:
        SystemExit: if a table names something twice or something that is not there, or a docstring leaves out an argument.
    """
    missing: list[str] = []
    parts = [HEAD]
    for package, purpose in PACKAGES.items():
        names = exported(package, missing)
        parts.append(f"## {package}\n\n{purpose}\n")
        for room, group in groupby(names, key=lambda found: folder(found, package)):
            links = " · ".join(f"[{found.node.name}](#{found.node.name.lower()})" for found in group)
            parts.append(f"- **{room}**: {links}" if room else f"- {links}")
        parts += ["", *(section(found, missing) for found in names)]
    if missing:
        raise SystemExit("\n".join(missing))
    return "\n".join(parts)


def main(words: list[str]) -> int:
    """Write the page, or with ``--check`` return 1 if it is out of date."""
    if words not in ([], ["--check"]):
        raise SystemExit("usage: python docs/build_api.py [--check]")
    text = page()
    if not words:
        PAGE.write_text(text)
    elif not PAGE.is_file() or PAGE.read_text() != text:
        print("docs/api.md is out of date: run python docs/build_api.py", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

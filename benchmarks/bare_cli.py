"""The peer of ``train.py``'s start-up: a bare LightningCLI script that builds the same model, data and trainer."""

import sys
import tempfile

import yaml
from lightning import LightningDataModule, LightningModule
from lightning.pytorch.cli import LightningCLI


def main(words: list[str]) -> None:
    """Build what the config says; the sections that only the launcher knows are left out."""
    with open(words[words.index("--config") + 1]) as file:
        config = yaml.safe_load(file)
    data = config["data"]["init_args"]
    task = config["model"]["init_args"]["task"].setdefault("init_args", {})
    task["box_shape"] = [data["box_rows"], data["box_cols"]]
    known = {key: config[key] for key in ("model", "data", "trainer", "seed_everything") if key in config}
    with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
        yaml.safe_dump(known, file)
        file.flush()
        words[words.index("--config") + 1] = file.name
        LightningCLI(
            LightningModule,
            LightningDataModule,
            subclass_mode_model=True,
            subclass_mode_data=True,
            run=False,
            save_config_callback=None,
            args=words,
        )


if __name__ == "__main__":
    main(sys.argv[1:])

"""What steering learns of a model: directions, strengths and the gate, as a file beside the model."""

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from lightning_modules.tlvs.gate import GateKind, StepGate

TENSORS, DESCRIPTION = "steering.safetensors", "steering.json"


@dataclass
class SteeringArtifact:
    """Directions of some decoder layers of one model, how far to turn towards them, and when.

    Attributes:
        vectors_Ld: direction times strength c of each steered layer, ``[L, d]``.
        layers: numbers of these layers, ascending.
        gate_layer: number of the layer whose state the gate reads; not after the first steered one.
        gate: the gate.
        gate_kind: which of its factors are used.
        identity: of the model, from its adapter.
        report: what was measured while calibrating, by name.
    """

    vectors_Ld: Tensor
    layers: tuple[int, ...]
    gate_layer: int
    gate: StepGate
    gate_kind: GateKind
    identity: dict[str, str]
    report: dict[str, Any]

    def __post_init__(self) -> None:
        if len(self.layers) != len(self.vectors_Ld):
            raise ValueError(f"{len(self.vectors_Ld)} vectors for the layers {self.layers}: give one each")
        if self.layers and self.gate_layer > min(self.layers):
            raise ValueError(f"gate_layer={self.gate_layer} comes after the steered layer {min(self.layers)}: take an earlier one")

    def check(self, identity: dict[str, str]) -> None:
        """Refuse another model.

        Raises:
            ValueError: if the identities differ; names both.
        """
        if identity != self.identity:
            raise ValueError(f"these steering vectors belong to {_one_line(self.identity)}, not to {_one_line(identity)}")

    def save(self, folder: str | Path) -> None:
        """Write ``steering.safetensors`` and ``steering.json`` into a folder, each whole or not at all."""
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        tensors = {"vectors": self.vectors_Ld, **{f"gate.{name}": value for name, value in self.gate.state_dict().items()}}
        temporary = folder / f".{TENSORS}"
        save_file({name: value.detach().cpu().contiguous() for name, value in tensors.items()}, temporary)
        os.replace(temporary, folder / TENSORS)
        description = {
            "layers": list(self.layers),
            "gate_layer": self.gate_layer,
            "gate_kind": self.gate_kind,
            "temperature": self.gate.temperature,
            "reference_entropy": self.gate.reference_entropy,
            "identity": self.identity,
            "report": self.report,
        }
        temporary = folder / f".{DESCRIPTION}"
        temporary.write_text(json.dumps(description, indent=1, sort_keys=True) + "\n", encoding="utf-8")
        os.replace(temporary, folder / DESCRIPTION)

    @classmethod
    def load(cls, folder: str | Path) -> "SteeringArtifact":
        """Read what :meth:`save` wrote.

        Raises:
            FileNotFoundError: if a file is missing.
            ValueError: if a file is damaged.
        """
        folder = Path(folder)
        missing = [name for name in (TENSORS, DESCRIPTION) if not (folder / name).exists()]
        if missing:
            raise FileNotFoundError(f"{folder} has no {' and no '.join(missing)}: calibrate, or give the folder of an artifact")
        try:
            tensors = load_file(folder / TENSORS)
            description = json.loads((folder / DESCRIPTION).read_text(encoding="utf-8"))
            vectors_Ld = tensors.pop("vectors")
            gate = StepGate(vectors_Ld.shape[1], description["temperature"], description["reference_entropy"])
            gate.load_state_dict({name.removeprefix("gate."): value for name, value in tensors.items()})
            return cls(
                vectors_Ld,
                tuple(description["layers"]),
                description["gate_layer"],
                gate,
                description["gate_kind"],
                description["identity"],
                description["report"],
            )
        except (SafetensorError, json.JSONDecodeError, KeyError, RuntimeError) as error:
            raise ValueError(f"the steering artifact in {folder} is damaged ({error}): calibrate again") from error


def _one_line(identity: dict[str, str]) -> str:
    return ", ".join(f"{name} {value}" for name, value in sorted(identity.items()))

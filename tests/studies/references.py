"""The papers' numbers, as they lie beside the studies."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from io import StringIO
from pathlib import Path

import pandas as pd

import clsweep
from clsweep.study.document import preset_names

STUDIES = Path(__file__).parents[2] / "studies"
ID_COLUMNS = ("objective", "dataset", "encoder")
VALUE_COLUMNS = ("metric", "value", "spread", "delta", "delta_to", "note")


@dataclass(frozen=True)
class Reference:
    """One file: what its `#` lines say, by their first word, and its rows as they are written."""

    path: Path
    header: dict[str, list[str]]
    rows: pd.DataFrame

    @property
    def settings(self) -> list[str]:
        """The columns of the swept settings."""
        return [name for name in self.rows if name not in (*ID_COLUMNS, *VALUE_COLUMNS)]

    @property
    def study(self) -> Path | None:
        """The study whose trials give these numbers; None where none can."""
        return self.path.parent / self.header["study"][0] if "study" in self.header else None

    @property
    def reference_only(self) -> list[str]:
        """Methods that the study does not train."""
        return [name for line in self.header.get("reference only", []) for name in line.split("; ")]


def read(path: Path) -> Reference:
    lines = path.read_text(encoding="utf-8").splitlines()
    header: dict[str, list[str]] = {}
    for line in lines:
        if line.startswith("# "):
            key, _, text = line.removeprefix("# ").partition(": ")
            header.setdefault(key, []).append(text)
    table = "\n".join(line for line in lines if not line.startswith("#"))
    return Reference(path, header, pd.read_csv(StringIO(table), dtype=str, keep_default_na=False))


REFERENCES = [read(path) for path in sorted(STUDIES.glob("*/*.csv"))]


@cache
def planned(study: Path) -> pd.DataFrame:
    """The cells of a study at the paper's scale, under each of its presets but `cpu`, once each.

    `dataset` names the folders of ImageNet by their number of classes.
    """
    presets = [None, *(name for name in preset_names(study) if name != "cpu")]
    cells = pd.concat([clsweep.load_study(study, preset=name).plan() for name in presets])
    folders = cells["num_classes"].map({100: "imagenet100", 1000: "imagenet1k"})
    cells["dataset"] = cells["dataset"].where(cells["dataset"] != "imagefolder", folders)
    cells = cells[cells["seed"] == cells["seed"].min()]
    told = [name for name in cells if name not in ("trial_id", "config")]
    return cells.drop_duplicates(told).reset_index(drop=True)

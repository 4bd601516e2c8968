"""The papers' numbers, as they lie beside the studies."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pandas as pd

import clsweep
from clsweep.study.document import preset_names
from clsweep.study.paper_tables import ID_COLUMNS, VALUE_COLUMNS, parse_paper_table

STUDIES = Path(__file__).parents[2] / "studies"


class Reference:
    """One file: what its `#` lines say, by their first word, and its rows as they are written."""

    def __init__(self, path: Path):
        self.path, self.table = path, parse_paper_table(path.read_text(encoding="utf-8"), str(path))
        columns = [*ID_COLUMNS, *VALUE_COLUMNS, *self.table.settings]
        self.rows = pd.DataFrame(self.table.rows, columns=columns)

    @property
    def item(self) -> str:
        """`Table 9`, of which there may be several files."""
        return re.sub(r" \([ab]\)$", "", self.table.first("item"))

    @property
    def study(self) -> Path | None:
        """The study whose trials give these numbers; None where none can."""
        name = self.table.first("study")
        return self.path.parent / name if name else None


REFERENCES = [Reference(path) for path in sorted(STUDIES.glob("*/*.csv"))]


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
    names = [name for name in cells if name not in ("trial_id", "config")]
    return cells.drop_duplicates(names).reset_index(drop=True)

"""What the checks of a study share: where a key was written, and the values that it takes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from clsweep.catalog import Dataset
from clsweep.study.document import Document, Keys
from clsweep.study.schema import StudySections
from clsweep.study.space import Objective


@dataclass(frozen=True)
class CheckBase:
    """Calls `error` once per mistake: where it stands; expected, given."""

    document: Document
    sections: StudySections
    dataset: Dataset
    transferred: Mapping[str, Dataset]  # data sets in a folder of their own
    error: Callable[[Keys, str], None]

    def _where(self, objective: Objective, param: str) -> Keys:
        """The keys under which `param` was written for this objective."""
        own: Mapping[str, Any] = self.document.tree["objectives"][objective.name]
        for kind in ("space", "base"):
            if param in (own.get(kind) or {}):
                return ("objectives", objective.name, kind, param)
        for kind in ("space", "base"):
            if param in getattr(self.sections, kind):
                return (kind, param)
        return ("objectives", objective.name)

    def _points(self, objective: Objective, name: str) -> tuple[Any, ...]:
        """All values that a hyperparameter takes; none if it has a range, or is not owned."""
        if name not in objective.owned:
            return ()
        if name in objective.fixed:
            return (objective.fixed[name],)
        return () if objective.space[name].is_range else objective.space[name].points

    def _ends(self, objective: Objective, name: str) -> tuple[Any, ...]:
        """All values that a swept hyperparameter takes, of a range its ends; none if it is
        fixed.
        """
        swept = objective.space.get(name)
        return () if swept is None else swept.points or swept.extremes

"""A report, from the statistics to its files."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from clsweep.display.theme import scripts
from clsweep.machine import num_cores
from clsweep.processes import processes_beside
from clsweep.questions.answers import Answers
from clsweep.questions.model import Figure
from clsweep.report.formats.folder import write_bundle
from clsweep.report.model import Report
from clsweep.report.sections import Say, build_report

MOST_PROCESSES = 4


def write_report(
    findings: Answers,
    out: str | os.PathLike[str],
    *,
    within: float | None = None,
    progress: Say | None = None,
) -> tuple[Report, Path]:
    """The report and the path of its page; as `build_report` and `write_bundle`."""
    with processes_beside(min(MOST_PROCESSES, num_cores())):
        scripts()
        report = build_report(findings, within=within, progress=progress, made=_draw)
        return report, write_bundle(report, out, progress=progress)


def _draw(figures: Iterable[Figure]) -> None:
    """Begin with these pictures."""
    for figure in figures:
        _ = figure.picture

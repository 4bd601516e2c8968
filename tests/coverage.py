"""Measures how often the 95 % intervals of the statistics hold the truth of planted sweeps, how
wide they are, and how often verdicts are false where there is no difference.

`make coverage` writes clsweep/analysis/STATISTICS.md, and every cell to coverage.csv beside it.
`--page` writes the page of that table again. `--only contrast,mean` prints a line for each of a few
cells of these groups or statistics instead, in two to three minutes each at 300 repeats. `--cells
TEXT` are all cells with this in their names ("grid of 6, 2 seeds"): each is the same by itself.
"""

from __future__ import annotations

import argparse
import csv
import os
import sys
import zlib
from collections.abc import Callable
from contextlib import nullcontext
from multiprocessing import get_context
from pathlib import Path
from typing import NamedTuple

os.environ.setdefault("OMP_NUM_THREADS", "1")  # the processes share the cores
sys.path.append(str(Path(__file__).parents[1]))

import numpy as np
import pandas as pd
import threadpoolctl

from tests import coverage_cells as planted
from tests import coverage_measures as measures
from tests.coverage_texts import COMMON, CROSS_FITTED, HEAD, LIMITS, STATISTICS, THIRD, TRIED

PAGE = Path(__file__).parents[1] / "clsweep/analysis/STATISTICS.md"
TABLE = PAGE.with_name("coverage.csv")
CELL = ["group", "space", "seeds", "noise", "trials"]
COLUMNS = [*CELL, "statistic", "repeats", "covers", "false", "width"]
LEAST, MOST, MOST_FALSE = 93.0, 99.5, 5.0  # percent
CONDITIONS = ("even", "seed shift", "uneven", "heavy tails", "gaps")
# Widths of all others are in units of the noise.
PLAIN = {
    "share_within",
    "tolerance_area",
    "compare std",
    "compare within",
    "tuning_cost",
    "sensitivity",
}

WIDTHS = [
    ("contrast", "one cell, between", "grid of 3 x 2"),
    ("contrast", "all, between", "grid of 3 x 2"),
    ("compare", "compare", "grid of 6"),
    ("levels", "level", "grid of 6"),
    ("robustness", "mean", "grid of 6"),
]


class Group(NamedTuple):
    """What measures a sweep of a cell, the cells, and how many repeats have one sweep measured."""

    measure: Callable
    cells: list
    share: int = 1


# A look at few seeds of the smallest grids and of a sample.
LOOK = (planted.EVEN, planted.WORST5, planted.HALF, planted.OWN[-1], planted.COMMON[1])
SMALL = (planted.ONE, planted.FLAT, planted.BY, planted.SAMPLED_CLIFF, "grid of 3 x 2", "grid of 6")


def is_plain(cell):
    space, seeds, noise, gap = cell
    is_small = space in (*SMALL, "random 64") or (space, noise) == ("grid of 11 x 5", planted.EVEN)
    is_whole = gap in (planted.COMPLETE, planted.LOST[0])
    return is_small and is_whole and seeds < 10 and noise in LOOK


GROUPS = {
    "contrast": Group(measures.contrast, planted.CONTRASTS),
    "compare": Group(measures.means, planted.PAIRS),
    "winners": Group(measures.regions, planted.REGIONS),
    "first screen": Group(measures.first_screen, planted.EQUAL),
    "levels": Group(measures.level, planted.LEVELS),
    "robustness": Group(measures.robust, planted.CELLS),
    "robustness --by": Group(measures.along, planted.MARGINALS),
    "others": Group(measures.other, planted.FEWER, 2),
    "compare tuned": Group(measures.best, planted.TUNED),
    "importance": Group(measures.search, planted.SEARCHES, 8),
    "new images": Group(measures.seen, planted.NEW_IMAGES),
}


def measured(job):
    """The rows of one cell, a statistic each; the same whatever else is measured."""
    (name, cell), repeats = job
    threadpoolctl.threadpool_limits = nullcontext  # it looks at every library, on every call
    group, start = GROUPS[name], zlib.crc32(repr((name, cell)).encode())
    draws = [
        group.measure(cell, np.random.default_rng((start, n)), n)
        for n in range(-(-repeats // group.share))
    ]
    rows = []
    for statistic in dict.fromkeys(key for each in draws for key in each):
        answers = np.array([each[statistic] for each in draws if statistic in each], dtype=float)
        known = [each[~np.isnan(each)] for each in answers.T]
        hits, width, false = (each if each.size else np.array([np.nan]) for each in known)
        unit = 1.0 if statistic in PLAIN or name == "new images" else planted.NOISE
        numbers = 100 * hits.mean(), 100 * false.mean(), np.median(width) / unit
        rounded = [float(f"{x:.4g}") for x in numbers]
        rows.append(
            dict(zip(COLUMNS, (name, *cell, statistic, len(answers), *rounded), strict=True))
        )
    return rows


def jobs_of(options):
    """The cells of groups of these names, or that have such statistics; all without any name."""
    for name, group in GROUPS.items():
        if options.only and not {name, *STATISTICS[name]} & {*options.only}:
            continue
        for cell in group.cells:
            where = place(dict(zip(CELL[1:], cell, strict=True)))
            if options.cells in where and (options.cells or not options.only or is_plain(cell)):
                yield (name, cell), options.repeats


def place(row):
    """`grid of 6, 2 seeds, even, complete`."""
    return f"{row['space']}, {row['seeds']} seeds, {row['noise']}, {row['trials']}"


def condition(row):
    """Which column of the summary a cell belongs to."""
    if row["trials"] in (*planted.GAPS, *planted.LOST, planted.RACED):
        return "gaps"
    if row["noise"].startswith("x"):
        return "uneven"
    noises = {planted.HEAVY: "heavy tails", "seeds shift": "seed shift"}
    return noises.get(row["noise"], "seed shift" if "shared" in row["noise"] else "even")


def summary(table, column, worst):
    """A row for each statistic, a number for each number of seeds: the worst of its cells."""
    is_known = table[column].notna()
    table = table[is_known].assign(condition=table[is_known].apply(condition, axis=1))
    lines = [f"| | {' | '.join(CONDITIONS)} |", f"|---{'|---' * len(CONDITIONS)}|"]
    for (group, statistic), rows in table.groupby(["group", "statistic"], sort=False):
        numbers = rows.groupby(["condition", "seeds"])[column].agg(worst)
        texts = [
            " ".join(text(numbers.get((each, seeds)), column) for seeds in planted.SEEDS)
            for each in CONDITIONS
        ]
        lines.append(f"| {title(group, statistic)} | {' | '.join(texts)} |")
    return "\n".join(lines)


def title(group, statistic):
    return statistic if statistic == group else f"{group}: {statistic}"


def text(number, column):
    """A percentage, bold where it is off; a dash for none."""
    if number is None:
        return "-"
    return f"**{number:.0f}**" if is_off(number, column) else f"{number:.0f}"


def is_off(number, column):
    return number > MOST_FALSE + 3 if column == "false" else number < LEAST - 2


def worst_cells(table):
    """Of each statistic that is off anywhere, its worst cell by name."""
    for column, pick in (("covers", "idxmin"), ("false", "idxmax")):
        known = table[table[column].notna()]
        for (group, statistic), rows in known.groupby(["group", "statistic"], sort=False):
            row = rows.loc[getattr(rows[column], pick)()]
            if is_off(row[column], column):
                words = {"covers": "covers", "false": "is false in"}[column]
                yield f"- {title(group, statistic)} {words} {row[column]:.0f}: {place(row)}."


def widths(table):
    """The median width of intervals by the number of seeds, in units of the noise."""
    lines = ["| | no shift | half of the noise shared by a seed |", "|---|---|---|"]
    at = table.set_index([*CELL, "statistic"])["width"]
    for group, statistic, space in WIDTHS:
        texts = [
            " ".join(
                f"{at[group, space, seeds, noise, planted.COMPLETE, statistic]:.1f}"
                for seeds in planted.SEEDS
            )
            for noise in (planted.EVEN, planted.HALF)
        ]
        lines.append(f"| {title(group, statistic)}, {space} | {' | '.join(texts)} |")
    return "\n".join(lines)


def page(table):
    """The text of the page, of the table of all cells."""
    repeats = table["repeats"].max()
    figures = {"repeats": repeats, "sampled": measures.SURROGATES, "least": LEAST}
    figures |= {"chance": 100 * np.sqrt(0.95 * 0.05 / repeats)}
    parts = [HEAD.format(**figures)]
    parts.append(f"## Coverage of 95 % intervals\n\n{summary(table, 'covers', 'min')}\n")
    parts.append(f"## False verdicts\n\n{summary(table, 'false', 'max')}\n")
    parts.append(f"{THIRD}\n{widths(table)}\n")
    parts.append("## Worst cells\n\n" + "\n".join(worst_cells(table)) + "\n")
    parts.append(f"{COMMON}\n## Statistics\n")
    for group, statistics in STATISTICS.items():
        parts.append(f"### {group}\n")
        for name, (columns, key, assumed, broken) in statistics.items():
            parts.append(
                f"- **{name}**: {columns[key]}.\n  *Assumes*: {assumed}\n  *Breaks*: {broken}"
            )
        parts.append("")
    return "\n".join([*parts, LIMITS, TRIED, CROSS_FITTED])


def parser():
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--repeats", type=int, default=200)
    options.add_argument("--processes", type=int, default=os.cpu_count())
    options.add_argument("--only", type=lambda names: names.split(","), default=[])
    options.add_argument("--cells", default="", help="those whose names hold this text")
    options.add_argument("--page", action="store_true", help="write the page of the table there is")
    return options


def main() -> None:
    options = parser().parse_args()
    if options.page:
        PAGE.write_text(page(pd.read_csv(TABLE)), encoding="utf-8")
        return
    jobs, rows = [*jobs_of(options)], []
    shown = csv.DictWriter(sys.stdout, COLUMNS)
    shown.writeheader()
    with get_context("spawn").Pool(options.processes) as pool:
        for number, each in enumerate(pool.imap(measured, jobs), start=1):
            print(f"{number} of {len(jobs)}", file=sys.stderr, flush=True)
            rows += each
            shown.writerows(row for row in each if wanted(row, options.only))
            sys.stdout.flush()
    if not options.only and not options.cells:
        table = pd.DataFrame(rows, columns=COLUMNS)
        table.to_csv(TABLE, index=False)
        PAGE.write_text(page(table), encoding="utf-8")


def wanted(row, words):
    return not words or row["group"] in words or row["statistic"] in words


if __name__ == "__main__":
    main()

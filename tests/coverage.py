"""Writes clsweep/analysis/STATISTICS.md: what each statistic is, takes for granted, and how often
its 95 % interval holds the truth in planted sweeps. `make coverage`, or `python tests/coverage.py
--repeats 200 --processes 4`.
"""

from __future__ import annotations

import argparse
import os
import sys
from multiprocessing import get_context
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")  # the processes share the cores
sys.path.append(str(Path(__file__).parents[1]))

import numpy as np

from clsweep.analysis import unseen
from tests import coverage_cells as planted
from tests.coverage_texts import HEAD, LIMITS, STATISTICS, TRIED

PAGE = Path(__file__).parents[1] / "clsweep/analysis/STATISTICS.md"
LEAST, MOST = 90.0, 99.5  # percent
ROWS = {  # columns of the tables of the page
    "robustness": (
        *("mean", "sd", "sd_star", "regret", "share_within"),
        *("tolerance_area", "iqm", "worst_10", "slope", "band"),
    ),
    "others": (
        *("compare mean", "compare std", "compare within"),
        *("best_of_k", "tuning_cost", "sensitivity"),
    ),
    "compare tuned": ("best", "named", "fresh, best", "fresh, named"),
    "importance of searches": ("importance", "not resolved"),
    "new images": (
        *("level", "lead", "no winner", "tuned", "best_of_k", "mean", "worst_10", "sd_star"),
        *("level (seeds)", "lead (seeds)", "no winner (seeds)", "tuned (seeds)"),
    ),
}
# Of each group what measures a sweep, in which cells, and how many sweeps have one measured.
GROUPS = {
    "robustness": (planted.robust, planted.CELLS, 1),
    "others": (planted.other, planted.FEWER, 2),
    "compare tuned": (planted.best, planted.TUNED, 1),
    "importance of searches": (planted.search, planted.SEARCHES, 8),
    "new images": (planted.seen, planted.NEW_IMAGES, 1),
}


def measured(job):
    """Shares of the intervals given that hold their truth: (group, cell), statistic -> percent."""
    (group, cell), repeats = job
    order = planted.CELLS + planted.TUNED + planted.SEARCHES + planted.NEW_IMAGES
    number = [*order, cell].index(cell)
    sweeps = [GROUPS[group][0](cell, np.random.default_rng((number, n)), n) for n in range(repeats)]
    known = {name: [x[name] for x in sweeps if x.get(name) is not None] for name in ROWS[group]}
    return (group, cell), {name: 100 * np.mean(x) if x else np.nan for name, x in known.items()}


def line(cell, covered, names):
    """A row of a table of the page; what is outside of the limits is bold."""
    space, seeds, noise, gap = cell
    texts = [f"{x:.0f}" if np.isfinite(x) else "" for x in (covered[name] for name in names)]
    off = [is_off(covered[name]) for name in names]
    texts = [f"**{text}**" if bold else text for text, bold in zip(texts, off, strict=True)]
    return f"| {' | '.join([space, str(seeds), noise, gap, *texts])} |"


def is_off(percent):
    return bool(np.isfinite(percent)) and not LEAST <= percent <= MOST


def page(covered, repeats):
    """The text of the page, of the shares by (group, cell)."""
    chance = 100 * np.sqrt(0.95 * 0.05 / max(repeats, 1))
    limits = {"least": LEAST, "most": MOST, "chance": chance, "said": unseen.LEAST_SAID}
    hidden = {seeds: unseen.unseen(seeds - 1, 5 * (seeds - 1)) for seeds in (2, 3, 5)}
    factors = [f"{factor:.1f} in 6 settings of {seeds} seeds" for seeds, factor in hidden.items()]
    limits["blind"] = ", ".join(factors)
    parts = [HEAD.format(repeats=repeats, sampled=planted.SURROGATES, **limits)]
    for name, (columns, key, *texts) in STATISTICS.items():
        assumed, broken = texts
        parts.append(f"### {name}\n\nFormula: {columns[key]}.\n\n{assumed}\n\n{broken}\n")
    for group, names in ROWS.items():
        head = ["space", "seeds", "noise", "trials", *names]
        rows = [line(cell, covered[group, cell], names) for at, cell in covered if at == group]
        table = [f"| {' | '.join(head)} |", f"|{'---|' * len(head)}", *rows]
        parts.append(f"## Coverage: {group}\n\n" + "\n".join(table) + "\n")
    return "\n".join([*parts, LIMITS, TRIED])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=200)
    parser.add_argument("--processes", type=int, default=os.cpu_count())
    options = parser.parse_args()
    groups, covered = GROUPS.items(), {}
    jobs = [((group, x), -(-options.repeats // share)) for group, (_, cells, share) in groups
            for x in cells]  # fmt: skip
    with get_context("spawn").Pool(options.processes) as pool:
        for number, (key, shares) in enumerate(pool.imap(measured, jobs), start=1):
            covered[key] = shares
            print(f"{number} of {len(jobs)}: {', '.join(map(str, key[1]))}", flush=True)
    PAGE.write_text(page(covered, options.repeats), encoding="utf-8")
    print(PAGE)


if __name__ == "__main__":
    main()

"""Notes of `clsweep plan` on steps that one GPU cannot hold, without counting them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from clsweep.catalog.known_gpus import GPUS, step_bytes
from clsweep.display.numbers import number
from clsweep.errors import listed
from clsweep.study.design import Study, plan_row, plan_trials
from clsweep.study.document import preset_names

_SIZES = (24, 40, 80)  # GB of memory of the GPUs that are mostly rented


def more_workers(first: int, batches: Iterable[int]) -> Iterator[int]:
    """Twice as many workers as at first, and so on, as long as all batches divide among them."""
    workers, sizes = 2 * first, set(batches)
    while all(size % workers == 0 and size >= 2 * workers for size in sizes):
        yield workers
        workers *= 2


def memory_notes(study: Study) -> list[str]:
    """Objectives whose step a GPU of 24, 40 or 80 GB cannot hold, and workers that can."""
    resources, first = study.sections.resources, study.sections.seeds[0]
    if not resources.gpus_per_worker:
        return []
    rows = [plan_row(study, trial) for trial in plan_trials(study) if trial.seed == first]
    rows = [row for row in rows if row.get("batch_size")]
    now = {row["trial_id"]: step_bytes(row, resources.workers) for row in rows}
    worst = max(rows, key=lambda row: now[row["trial_id"]], default=None)
    if worst is None:
        return []
    share = resources.gpus_per_worker
    smallest, advice = replace(GPUS["a10g"], memory=float(_SIZES[0])), []
    for gpu in (replace(smallest, memory=float(size)) for size in _SIZES):
        if gpu.holds(now[worst["trial_id"]], share):
            continue
        wanted = more_workers(resources.workers, (row["batch_size"] for row in rows))
        workers = next((w for w in wanted if gpu.holds(step_bytes(worst, w), share)), None)
        name = f"gpu{gpu.memory:.0f}"
        preset = f" (--preset {name})" * (name in preset_names(study.document.source))
        fits = f"resources.workers={workers}{preset}" if workers else "a smaller batch or chunks"
        advice.append(f"one of {gpu.memory:.0f} GB needs {fits}")
    large = [row["objective"] for row in rows if not smallest.holds(now[row["trial_id"]], share)]
    needed = f"{number(now[worst['trial_id']] / 1e9)} GB of each GPU"
    names = listed(list(dict.fromkeys(large)))
    return [f"note: {names}: a step takes up to {needed}; {', '.join(advice)}"] if advice else []

"""Studies of seconds, and trials tables and results folders of known truth, with the columns that
statistics ask for.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import yaml

from clsweep.results.folder import ResultsFolder
from clsweep.results.schemas import side_schema, to_table
from clsweep.study.design import plan_row, plan_trials
from clsweep.study.paper_tables import checked_files, paper_cells

Level = Callable[[Mapping[str, Any]], float]


def study_tree(**changes: object) -> dict[str, object]:
    """A study of two objectives on digits; a trial takes about a second."""
    tree: dict[str, object] = {
        "name": "small",
        "dataset": {"name": "digits"},
        "seeds": [0, 1],
        "base": {
            "encoder": "conv4",
            "width": 8,
            "epochs": 2,
            "batch_size": 128,
            "flip_prob": 0,
            "eval_every": 1,
        },
        "space": {"tau": {"low": 0.05, "high": 1.0, "log": True, "grid": [0.1, 0.5]}},
        "objectives": {
            "simclr": {"framework": "simclr", "loss": "infonce"},
            "dcl": {"framework": "simclr", "loss": "dcl"},
        },
        "search": {"method": "grid"},
    }
    return {**tree, **changes}


def study_at(path: Path, **changes: object) -> Path:
    """`study_tree` in a file."""
    path.write_text(yaml.safe_dump(study_tree(**changes), sort_keys=False))
    return path


def planted(
    level: Level,
    *,
    objective: str = "dcl",
    grid: Mapping[str, Sequence[Any]] | None = None,
    ranges: Mapping[str, tuple[float, float]] | None = None,
    num_configs: int = 64,
    sampler: str = "random",
    num_seeds: int = 3,
    noise: float = 0.3,
    fail: Callable[[Mapping[str, Any]], bool] = lambda _: False,
    seed: int = 0,
    metric: str = "knn_top1",
) -> pd.DataFrame:
    """One objective: `level(setting)` plus normal noise, over a full grid or a random sample of
    ranges.
    """
    rng = np.random.default_rng(seed)
    if grid is not None:
        settings = [
            dict(zip(grid, values, strict=True)) for values in itertools.product(*grid.values())
        ]
        sampler = "grid"
    else:
        settings = [
            {name: float(rng.uniform(low, high)) for name, (low, high) in (ranges or {}).items()}
            for _ in range(num_configs)
        ]
    rows = []
    for config, setting in enumerate(settings):
        for number in range(num_seeds):
            failed = fail(setting)
            rows.append(
                {
                    "trial_id": f"{objective}-{config:04d}-s{number}",
                    "objective": objective,
                    "framework": "simclr",
                    "loss": "infonce",
                    "regularizer": "none",
                    "views": "two",
                    "config": config,
                    "seed": number,
                    "sampler": sampler,
                    "status": "failed" if failed else "finished",
                    metric: np.nan if failed else level(setting) + noise * rng.standard_normal(),
                    "q_b_mean": np.nan if failed else rng.random(),
                    **setting,
                }
            )
    return pd.DataFrame(rows)


def three_objectives() -> pd.DataFrame:
    """A robust objective and one that is not, best at tau 0.2, and a third like the second."""
    grid = {"tau": [0.05, 0.1, 0.2, 0.5, 1.0], "batch_size": [64, 256]}
    depths = {"dcl": 2, "simclr": 12, "<b>x</b>": 12}  # points a decade squared below the best
    frames = [
        planted(
            lambda at, depth=depth: 90 - depth * math.log10(at["tau"] / 0.2) ** 2,
            objective=name, grid=grid, seed=seed,
        )
        for seed, (name, depth) in enumerate(depths.items(), 1)
    ]  # fmt: skip
    return pd.concat(frames, ignore_index=True)


def recorded(
    path: Any,
    study: Any,
    outcome: Callable[[Mapping[str, Any]], Mapping[str, Any] | None],
    *,
    printed: Any = None,
    epochs: Sequence[Mapping[str, Any]] = (),
    hits: Callable[[Mapping[str, Any]], Sequence[Mapping[str, Any]]] | None = None,
) -> str:
    """The results folder of a study that nobody ran: `outcome` is what a trial of the plan gave,
    None where it has not ended. `printed` is the study file that has a paper's numbers beside it.
    """
    plan = [plan_row(study, trial) for trial in plan_trials(study)]
    folder = ResultsFolder(str(path))
    with folder.lock():
        folder.create(study.document.dump(), plan)
        if printed:
            folder.add_paper_tables(checked_files(printed), paper_cells(printed))
        outcomes = [(row, outcome(row)) for row in plan]
        rows = [{**row, "status": "finished", **more} for row, more in outcomes if more is not None]
        record(folder, rows, epochs=epochs, **({"hits": hits} if hits else {}))
    return str(folder.path)


def record(
    folder: ResultsFolder,
    rows: Sequence[Mapping[str, Any]],
    **side: Sequence[Mapping[str, Any]] | Callable[..., Sequence[Mapping[str, Any]]],
) -> None:
    """Trials that have ended, each with the same rows of side tables or those that a function gives
    of it, in a folder that has none yet: as a run's compaction leaves them, without a file for each
    on the way.
    """
    for name, given in {"epochs": (), **side}.items():
        each = given if callable(given) else lambda _, same=given: same
        outcomes = [{"trial_id": row["trial_id"], **more} for row in rows for more in each(row)]
        folder._write_table(f"{name}.parquet", to_table(outcomes, side_schema(name)))
    folder._write_table("trials.parquet", to_table(rows, folder._row_schema))

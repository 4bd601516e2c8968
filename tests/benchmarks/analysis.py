"""How long the statistics and the report of a very large study take, beside what else answers parts
of it.

100,000 configurations x 3 seeds of 8 hyperparameters, with every column filled that a real trial
fills. The peers are `scipy.stats.bootstrap` for the interval of the spread (2,000 resamples of the
configurations' means, as its default vectorised form does it, in batches), and Optuna's fANOVA on
1,000 of the configurations for the importances.

    python tests/benchmarks/analysis.py [--configs 100000] [--objectives 4] [--repeats 3]
    [--no-report]
"""

from __future__ import annotations

import argparse
import os
import tempfile
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import yaml
from _machine import CLSWEEP, machine, python_seconds, seconds

import clsweep
from clsweep.display.printing import print_table
from clsweep.results.schemas import (
    metric_fields,
    param_fields,
    plan_schema,
    side_schema,
    trials_schema,
)

SPACE: dict[str, tuple[float, float, bool]] = {  # low, high, log
    "tau": (0.05, 1.0, True),
    "lr": (0.01, 1.0, True),
    "weight_decay": (1e-6, 1e-3, True),
    "batch_size": (32, 512, True),
    "proj_dim": (32, 512, True),
    "crop_scale": (0.08, 0.8, False),
    "jitter_strength": (0.0, 1.0, False),
    "momentum": (0.9, 0.999, False),
}
WHOLE = ("batch_size", "proj_dim")


def make_results(folder: Path, num_configs: int, num_objectives: int, num_seeds: int = 3) -> None:
    """A results folder of a random search that has ended; one trial in a hundred has failed."""
    rng = np.random.default_rng(0)
    trials = pd.concat(
        [
            make_objective(f"objective{i}", num_configs // num_objectives, num_seeds, rng)
            for i in range(num_objectives)
        ]
    )
    space = {
        name: {"low": low, "high": high, "log": log} for name, (low, high, log) in SPACE.items()
    }
    study = {
        "name": "large",
        "dataset": {"name": "digits"},
        "metric": {"name": "knn_top1", "mode": "max"},
        "seeds": list(range(num_seeds)),
        "space": space,
        "search": {"method": "random", "trials_per_objective": num_configs // num_objectives},
        "objectives": {
            f"objective{i}": {"framework": "simclr", "loss": "infonce"}
            for i in range(num_objectives)
        },
    }
    (folder / "study.yaml").write_text(yaml.safe_dump(study))
    write(trials, trials_schema(param_fields(SPACE)), folder / "trials.parquet")
    epochs = trials[["trial_id", "knn_top1"]].assign(epoch=1, time_s=1.0)
    write(epochs, side_schema("epochs"), folder / "epochs.parquet")
    write(trials, plan_schema(param_fields(SPACE)), folder / "plan.parquet")


def make_objective(
    name: str, num_configs: int, num_seeds: int, rng: np.random.Generator
) -> pd.DataFrame:
    unit = rng.random((num_configs, len(SPACE)))
    values: dict[str, Any] = {}
    for column, (param, (low, high, log)) in zip(unit.T, SPACE.items(), strict=True):
        values[param] = low * (high / low) ** column if log else low + (high - low) * column
        if param in WHOLE:
            values[param] = values[param].astype(int)
    level = (
        90
        - 20 * (unit[:, 0] - 0.4) ** 2
        - 6 * np.abs(unit[:, 1] - 0.5)
        + 2 * unit[:, 3] * unit[:, 0]
        + unit[:, 5]
    )
    frame = pd.DataFrame(values).assign(config=np.arange(num_configs), level=level)
    frame = frame.loc[np.repeat(frame.index, num_seeds)].reset_index(drop=True)
    seed = np.tile(np.arange(num_seeds), num_configs)
    failed = rng.random(len(frame)) < 0.01
    score = np.where(failed, np.nan, frame.pop("level") + 0.4 * rng.standard_normal(len(frame)))
    texts = {
        "framework": "simclr",
        "loss": "infonce",
        "regularizer": "none",
        "views": "two",
        "sampler": "random",
    }
    numbers = (
        "train_loss", "q_b_mean", "q_b_cv", "grad_norm_cv", "feature_diversity", "uniformity",
        "images_per_s",
    )  # fmt: skip
    return frame.assign(
        trial_id=[f"{name}-{c:06d}-s{s}" for c, s in zip(frame["config"], seed, strict=True)],
        study="large",
        objective=name,
        seed=seed,
        **texts,
        dataset="digits",
        num_classes=10,
        status=np.where(failed, "failed", "finished"),
        error_class=np.where(failed, "RuntimeError", None),
        error_message=np.where(failed, "x" * 200, None),
        **(
            {field.name: score for field in metric_fields()}
            | {number: rng.random(len(frame)) for number in numbers}
        ),
        wall_time_s=30.0,
        device="cpu",
        workers=1,
        clsweep_version=version("clsweep"),
        torch_version="2",
    )


def write(frame: pd.DataFrame, schema: pa.Schema, path: Path) -> None:
    columns = {
        field.name: pa.array(frame[field.name], field.type, from_pandas=True)
        if field.name in frame
        else pa.nulls(len(frame), field.type)
        for field in schema
    }
    pq.write_table(pa.table(columns, schema=schema), path)


def scipy_bootstrap(folder: Path) -> None:
    """Interval of the spread of the configurations' means, per objective, once they are read."""
    from scipy import stats

    trials = pd.read_parquet(folder / "trials.parquet", columns=["objective", "config", "knn_top1"])
    for _, group in trials.groupby("objective"):
        means = group.groupby("config")["knn_top1"].mean().dropna().to_numpy()
        stats.bootstrap((means,), lambda x, axis: np.std(x, axis=axis, ddof=1), n_resamples=2000,
                        batch=20,
                        method="percentile", rng=0)  # fmt: skip


def optuna_fanova(folder: Path, num_trials: int = 1000) -> None:
    """Importances of one objective, from some of its configurations."""
    import optuna

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    trials = pd.read_parquet(folder / "trials.parquet").query(
        "objective == 'objective0' and seed == 0"
    )
    study = optuna.create_study(direction="maximize")
    space = {
        name: optuna.distributions.FloatDistribution(low, high, log=log)
        for name, (low, high, log) in SPACE.items()
    }
    for row in trials.dropna(subset=["knn_top1"]).head(num_trials).to_dict("records"):
        params = {name: float(row[name]) for name in SPACE}
        study.add_trial(
            optuna.trial.create_trial(params=params, distributions=space, value=row["knn_top1"])
        )
    optuna.importance.get_param_importances(
        study, evaluator=optuna.importance.FanovaImportanceEvaluator(seed=0)
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--configs", type=int, default=100_000)
    parser.add_argument("--objectives", type=int, default=4)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--no-report", action="store_true")
    options = parser.parse_args()
    print(machine(), f"numpy {np.__version__}, pandas {pd.__version__}", sep=", ")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "large"
        folder.mkdir()
        make_results(folder, options.configs, options.objectives)
        print(
            f"{options.configs:,} configurations x 3 seeds, {options.objectives} objectives, "
            f"{len(SPACE)} parameters"
        )
        rounds: dict[str, Callable[[], object]] = {
            "open + robustness": lambda: clsweep.open_results(folder).robustness(),
            "open + robustness by tau": lambda: clsweep.open_results(folder).robustness(by="tau"),
            "clsweep robustness, as a command": lambda: python_seconds(
                *CLSWEEP, "robustness", folder
            ),
            "peer: scipy.stats.bootstrap of the spread alone": lambda: scipy_bootstrap(folder),
            "open + sensitivity": lambda: clsweep.open_results(folder).sensitivity(),
            "peer: fANOVA of 1,000 trials of one objective": lambda: optuna_fanova(folder),
        }
        if not options.no_report:
            rounds["clsweep report, as a command"] = lambda: python_seconds(
                *CLSWEEP, "report", folder, "--out", Path(name) / "report"
            )
        times = {
            what: [seconds(call) for _ in range(options.repeats)] for what, call in rounds.items()
        }
        first = min(times["open + robustness"])
        rows = [
            {"what": what, "min s": min(t), "max s": max(t), "x robustness": min(t) / first}
            for what, t in times.items()
        ]
        print_table(rows)
        if not options.no_report:
            size = sum(
                file.stat().st_size for file in (Path(name) / "report").rglob("*") if file.is_file()
            )
            page = os.path.getsize(Path(name) / "report" / "index.html")
            print(f"report: {size / 2**20:.1f} MiB, the page {page / 2**20:.1f} MiB")


if __name__ == "__main__":
    main()

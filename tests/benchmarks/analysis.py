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

import os
import sys
import tempfile
from collections.abc import Callable, Mapping
from importlib.metadata import version
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import yaml
from _machine import CLSWEEP, machine, options, python_seconds, seconds

sys.path.insert(0, str(Path(__file__).parents[2]))

import clsweep
from clsweep.display.printing import print_table
from clsweep.results.schemas import (
    metric_fields,
    param_fields,
    plan_schema,
    side_schema,
    trials_schema,
)
from tests.planted import planted

SPACE = {
    "tau": (0.05, 1.0), "lr": (0.01, 1.0), "weight_decay": (1e-6, 1e-3), "batch_size": (32, 512),
    "proj_dim": (32, 512), "crop_scale": (0.08, 0.8), "jitter_strength": (0.0, 1.0),
    "momentum": (0.9, 0.999),
}  # fmt: skip
WHOLE = ("batch_size", "proj_dim")


def make_results(folder: Path, num_configs: int, num_objectives: int, num_seeds: int = 3) -> None:
    """A results folder of a random search that has ended; one trial in a hundred has failed."""
    names = [f"objective{i}" for i in range(num_objectives)]
    per_objective = num_configs // num_objectives
    trials = pd.concat([made(i, name, per_objective, num_seeds) for i, name in enumerate(names)])
    study = {
        "name": "large",
        "dataset": {"name": "digits"},
        "metric": {"name": "knn_top1", "mode": "max"},
        "seeds": list(range(num_seeds)),
        "space": {name: {"low": low, "high": high} for name, (low, high) in SPACE.items()},
        "search": {"method": "random", "trials_per_objective": per_objective},
        "objectives": {key: {"framework": "simclr", "loss": "infonce"} for key in names},
    }
    (folder / "study.yaml").write_text(yaml.safe_dump(study))
    write(trials, trials_schema(param_fields(SPACE)), folder / "trials.parquet")
    epochs = trials[["trial_id", "knn_top1"]].assign(epoch=1, time_s=1.0)
    write(epochs, side_schema("epochs"), folder / "epochs.parquet")
    write(trials, plan_schema(param_fields(SPACE)), folder / "plan.parquet")


def made(seed: int, name: str, num_configs: int, num_seeds: int) -> pd.DataFrame:
    """The trials of an objective, with every column filled that a real trial fills."""

    def level(at: Mapping[str, float]) -> float:
        tau = at["tau"]
        return 90 - 20 * (tau - 0.4) ** 2 - 6 * abs(at["lr"] - 0.5) + tau * at["batch_size"] / 256

    sizes = {"num_configs": num_configs, "num_seeds": num_seeds, "noise": 0.4}
    frame = planted(level, objective=name, ranges=SPACE, seed=seed, **sizes)
    rng = np.random.default_rng(seed)
    failed = rng.random(len(frame)) < 0.01
    score = frame["knn_top1"].where(~failed)
    numbers = ("train_loss", "q_b_cv", "grad_norm_cv", "feature_diversity", "uniformity")
    return frame.assign(
        **frame[list(WHOLE)].astype(int),
        **{field.name: score for field in metric_fields()}
        | {number: rng.random(len(frame)) for number in (*numbers, "images_per_s")},
        study="large",
        dataset="digits",
        num_classes=10,
        status=np.where(failed, "failed", "finished"),
        error_class=np.where(failed, "RuntimeError", None),
        error_message=np.where(failed, "x" * 200, None),
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
    space = {name: optuna.distributions.FloatDistribution(*ends) for name, ends in SPACE.items()}
    for row in trials.dropna(subset=["knn_top1"]).head(num_trials).to_dict("records"):
        params = {name: float(row[name]) for name in SPACE}
        study.add_trial(
            optuna.trial.create_trial(params=params, distributions=space, value=row["knn_top1"])
        )
    optuna.importance.get_param_importances(
        study, evaluator=optuna.importance.FanovaImportanceEvaluator(seed=0)
    )


def main() -> None:
    given = options(__doc__, configs=100_000, objectives=4, repeats=3, no_report=False)
    print(machine(), f"numpy {np.__version__}, pandas {pd.__version__}", sep=", ")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "large"
        folder.mkdir()
        make_results(folder, given.configs, given.objectives)
        print(
            f"{given.configs:,} configurations x 3 seeds, {given.objectives} objectives, "
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
        if not given.no_report:
            rounds["clsweep report, as a command"] = lambda: python_seconds(
                *CLSWEEP, "report", folder, "--out", Path(name) / "report"
            )
        times = {
            what: [seconds(call) for _ in range(given.repeats)] for what, call in rounds.items()
        }
        first = min(times["open + robustness"])
        rows = [
            {"what": what, "min s": min(t), "max s": max(t), "x robustness": min(t) / first}
            for what, t in times.items()
        ]
        print_table(rows)
        if not given.no_report:
            size = sum(
                file.stat().st_size for file in (Path(name) / "report").rglob("*") if file.is_file()
            )
            page = os.path.getsize(Path(name) / "report" / "index.html")
            print(f"report: {size / 2**20:.1f} MiB, the page {page / 2**20:.1f} MiB")


if __name__ == "__main__":
    main()

"""No two commands disagree on one folder: who is best, at which setting, with which numbers."""

from __future__ import annotations

import math
import re
import zlib
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import yaml

from clsweep.api import Results, open_results
from clsweep.cli.status import TUNED, best_when_tuned, status_rows, tuned_rows
from clsweep.cluster.confirm import confirming_study, plan_confirmation
from clsweep.cluster.schedulers.racing import SeedRacing
from clsweep.report import first_screen
from clsweep.results.folder import ResultsFolder
from clsweep.statistics import verdicts
from clsweep.statistics.robustness import tolerance
from clsweep.study.design import plan_row, plan_trials
from clsweep.study.resolve import load_study
from tests.analysis.draws import drawing
from tests.planted import recorded

Row = Mapping[str, Any]
TAUS = {"tau": {"grid": [0.05, 0.1, 0.2, 0.5, 1.0]}}
LINE = {"tau": {"low": 0.05, "high": 1.0, "log": True}}
BOX = {**LINE, "lr": {"low": 0.01, "high": 1.0, "log": True}}
DCLW = {"dclw": {"framework": "simclr", "loss": "dclw"}}
SIMCLR = {"simclr": {"framework": "simclr", "loss": "infonce"}}
TWO = {**SIMCLR, "dcl": {"framework": "simclr", "loss": "dcl"}}
MOCO = {name: {"framework": "moco", "loss": name} for name in ("infonce", "dcl")}
TREE: dict[str, Any] = {
    "dataset": {"name": "digits", "val_fraction": 0.2},
    "metric": {"name": "knn_top1", "mode": "max"},
    "seeds": [0, 1, 2],
    "base": {"encoder": "conv4", "epochs": 4, "eval_every": 2, "batch_size": 32, "lr": 0.3},
    "space": TAUS,
    "objectives": TWO,
    "search": {"method": "grid"},
}
MOMENTUM = {
    "momentum_schedule": {"choices": ["constant", "cosine"]},
    "momentum_end": {"grid": [0.999, 1.0], "when": {"momentum_schedule": "cosine"}},
}


def score(row: Row, *, noise: float = 0.5, lead: float = 1.0, shift: float = 0.0,
          depth: float = 6.0, top: float = 90.0, sign: float = 1.0,
          step: float = 0.0) -> float:  # fmt: skip
    """Best at tau 0.2, and dcl is ahead; the noise is that of the trial's name. Scores of few
    images are a `step` apart.
    """
    of_trial = np.random.default_rng(zlib.crc32(row["trial_id"].encode()))
    of_seed = np.random.default_rng(row["seed"])
    level = top - depth * math.log10((row.get("tau") or 0.2) / 0.2) ** 2
    level -= 2 * math.log10((row.get("lr") or 0.3) / 0.3) ** 2 + (row.get("dataset") == "digits")
    level += lead * row["objective"].endswith("dcl") + shift * of_seed.standard_normal()
    level += noise * of_trial.standard_normal()
    return sign * (round(level / step) * step if step else level)


def chosen(row: Row) -> dict[str, Any]:
    """What a live search tries."""
    rng = np.random.default_rng([row["config"], len(row["objective"])])
    return {name: 10 ** rng.uniform(-1.3, 0) for name in ("tau", "lr") if row.get(name) is None}


def but(*ended: str, **changed: Any) -> Callable[[Row], Row | None]:
    """Trials end with `changed`, but those whose name matches have not ended."""

    def outcome(row: Row) -> Row | None:
        return None if any(re.search(each, row["trial_id"]) for each in ended) else changed

    return outcome


def fails(which: str) -> Callable[[Row], Row]:
    failed = {"status": "failed", "knn_top1": None, "error_message": "out of memory"}
    return lambda row: failed if re.search(which, row["trial_id"]) else {}


def stopped(row: Row) -> Row:
    """By ASHA: the worse half after 2 epochs."""
    return {"status": "stopped", "epochs_trained": 2} if row["config"] % 2 else {}


TPE = {"space": BOX, "search": {"method": "tpe", "trials_per_objective": 24}, "seeds": [0]}
# study: changes of TREE, options of `score`, and what the trials are beside their score
FOLDERS: dict[str, tuple[dict[str, Any], dict[str, Any], Callable[[Row], Row | None]]] = {
    "grid": ({}, {}, but()),
    "one seed": ({"seeds": [3]}, {}, but()),
    "two seeds": ({"seeds": [3, 1]}, {}, but()),
    "ten seeds": ({"seeds": [*range(10)]}, {"lead": 0.3}, but()),
    "no noise": ({}, {"noise": 0.0}, but()),
    "a tie": ({}, {"noise": 0.0, "lead": 0.0}, but()),
    "a tie of flat ones": ({}, {"noise": 0.0, "lead": 0.0, "depth": 0.0}, but()),
    "much noise": ({}, {"noise": 8.0}, but()),
    "seeds shift": ({"seeds": [0, 1, 2, 3, 4]}, {"noise": 0.2, "shift": 3.0}, but()),
    "three objectives": ({"objectives": {**TWO, **DCLW}}, {"noise": 2.0}, but()),
    "one objective": ({"objectives": SIMCLR}, {}, but()),
    "nothing swept": ({"space": {}}, {}, but()),
    "two axes": ({"space": {**TAUS, "lr": {"grid": [0.1, 0.3, 1.0]}}}, {"noise": 1.0}, but()),
    "batch sizes": ({"space": {"batch_size": {"choices": [32, 64, 128]}}}, {}, but()),
    "categories": ({"space": {"encoder": {"choices": ["conv4", "resnet18"]}}}, {}, but()),
    "a trial missing": ({}, {}, but("dcl-0002-s1")),
    "a seed to come": ({}, {"noise": 2.0}, but("s2$")),
    "one seed of one objective": ({}, {}, but("simclr.*s[12]", "dcl.*s2")),
    "one objective to come": ({}, {}, but("^dcl-")),
    "nearly nothing": ({}, {}, but("000[1-4]", "dcl")),
    "a failed seed": ({}, {}, fails("0002-s1")),
    "a failed corner": ({}, {}, fails("000[34]")),
    "all of one failed": ({}, {}, fails("^simclr")),
    "all but one seed failed": ({}, {}, fails("s[12]")),
    "random": ({"space": BOX, "search": {"method": "random", "trials_per_objective": 16}}, {},
               but()),
    "qmc": ({"space": LINE, "search": {"method": "qmc", "trials_per_objective": 12}}, {}, but()),
    "tpe": (TPE, {}, chosen),
    "tpe of two seeds": ({**TPE, "seeds": [0, 1]}, {}, chosen),
    "tpe that runs": (TPE, {}, lambda row: None if row["config"] > 15 else chosen(row)),
    "asha": ({**TPE, "scheduler": {"name": "asha"}}, {}, lambda row: chosen(row) | stopped(row)),
    "factors": ({"factors": {"dataset": ["digits", "fashion_mnist"]}, "dataset": None,
                 "space": {"tau": {"grid": [0.1, 0.2, 1.0]}}},
                {"noise": 1.0}, but()),
    "nested": ({"space": MOMENTUM, "objectives": MOCO}, {}, but()),
    "scores of few images": ({"seeds": [3, 1]}, {"noise": 2.0, "depth": 1.0, "step": 1.0}, but()),
    "percentages at the limit": ({}, {"top": 99.5, "noise": 0.3}, but()),
}  # fmt: skip
RACES = {
    "a race": {"noise": 0.5},
    "a race of equals": {"noise": 1.0, "depth": 0.2, "lead": 0.0},
    "a race with a shift": {"noise": 0.3, "shift": 3.0},
}
CONFIRMED = {
    "confirmed": {},
    "overturned": {"noise": 2.5, "depth": 1.0, "lead": 0.0},
    "confirmed, a tie": {"noise": 0.0, "lead": 0.0},
    "confirmed in two rounds": {"noise": 1.5},
    "confirmed factors": {"noise": 1.5},
}
WITH_HITS = ", with hits"  # of which intervals are for new images
KEEPING = ("grid", "one seed", "two seeds", "no noise", "a tie", "much noise", "seeds shift",
           "three objectives", "nothing swept", "a trial missing", "a failed seed",
           "a failed corner", "qmc", "tpe of two seeds", "factors", "nested", "a race",
           "a race with a shift", "confirmed", "overturned", "confirmed factors")  # fmt: skip
NAMES = (*FOLDERS, *RACES, *CONFIRMED, *(f"{name}{WITH_HITS}" for name in KEEPING))
FAST = [f"{name}{WITH_HITS}" for name in ("grid", "a tie", "a failed seed", "overturned",
                                          "confirmed factors")]  # fmt: skip
NUM = 400


def measured(found: float, *, hits: bool) -> float:
    """The score of a trial: one of its images, where these are kept."""
    return round(min(found, 100) / 100 * NUM) / NUM * 100 if hits else found


def hits_of(row: Row) -> list[Row]:
    """As many of 400 images as the score says: mostly the easy ones."""
    if row["status"] != "finished":
        return []
    ease = np.random.default_rng(7).normal(size=NUM)
    own = np.random.default_rng(zlib.crc32(row["trial_id"].encode())).normal(size=NUM)
    right = np.argsort(ease + own).argsort() < round(row["knn_top1"] / 100 * NUM)
    kept = {"images": "0f", "num_images": NUM, "bits": np.packbits(right).tobytes()}
    return [{"metric": "knn_top1", "split": "validation", **kept}]


def written(folder: Path, changes: Mapping[str, Any]) -> Path:
    folder.mkdir(parents=True)
    tree = {key: value for key, value in {**TREE, **changes}.items() if value is not None}
    (folder / "study.yaml").write_text(yaml.safe_dump({"name": "s", **tree}, sort_keys=False))
    return folder / "study.yaml"


def make(folder: Path, name: str) -> str:
    """The results folder of that name."""
    hits, name = name.endswith(WITH_HITS), name.removesuffix(WITH_HITS)
    if name in FOLDERS:
        changes, options, outcome = FOLDERS[name]
        return _recorded(folder, changes, options, outcome, hits=hits)
    if name in RACES:
        return _raced(folder, RACES[name], hits=hits)
    changes = FOLDERS["factors"][0] if "factors" in name else {}
    path = _recorded(folder, changes, CONFIRMED[name], but(), hits=hits)
    rounds = [(3, [10, 11, 12]), (1, [13, 14])]
    _confirm(path, CONFIRMED[name], rounds[: 1 + ("two rounds" in name)], hits=hits)
    return path


def _recorded(
    folder: Path, changes: Row, options: Row, outcome: Callable[..., Any], *, hits: bool
) -> str:
    def found(row: Row) -> Row | None:
        if (own := outcome(row)) is None:
            return None
        seen = measured(score({**row, **own}, **options), hits=hits)
        return {"knn_top1": seen, "linear_top1": seen - 5, "wall_time_s": 2.0, **own}

    study = load_study(written(folder, changes))
    return recorded(folder / "out", study, found, hits=hits_of if hits else None)


def _raced(folder: Path, options: Row, *, hits: bool) -> str:
    changes = {"seeds": [*range(5)], "scheduler": {"name": "racing"},
               "search": {"method": "qmc", "trials_per_objective": 12}, "space": LINE}  # fmt: skip
    study = load_study(written(folder, changes))
    plan = {t.trial_id: plan_row(study, t) for t in plan_trials(study)}
    ended: dict[str, Row] = {}

    def skip(trial: Any, why: str) -> None:
        ended[trial.trial_id] = {"status": "skipped", "skipped_because": why}

    race = SeedRacing(study.sections, plan_trials(study), plan_trials(study), skip)
    while (trial := next(race, None)) is not None:
        found = measured(score(plan[trial.trial_id], **options), hits=hits)
        ended[trial.trial_id] = {"knn_top1": found, "wall_time_s": 2.0}
        race.tell(plan[trial.trial_id], "finished", found)
    kept = hits_of if hits else None
    return recorded(folder / "out", study, lambda row: ended[row["trial_id"]], hits=kept)


def _confirm(
    path: str, options: Row, rounds: Sequence[tuple[int, list[int]]], *, hits: bool
) -> None:
    folder, rows = ResultsFolder(path), []
    for top, seeds in rounds:
        study = confirming_study(folder, top=top, seeds=seeds)
        rows += [plan_row(study, trial) for trial in plan_confirmation(study, folder)]
    with folder.confirmation.lock():
        folder.confirmation.create(study.document.dump(), rows)
        for row in rows:
            seen = measured(score(row, **options), hits=hits)
            ended = {**row, "status": "finished", "knn_top1": seen, "wall_time_s": 2.0}
            ended["linear_top1"] = seen - 5
            folder.confirmation.add_trial(ended, hits=hits_of(ended) if hits else ())
        folder.confirmation.compact()


Facts = dict[str, dict[str, Any]]  # what is said -> by which table -> the value
NAMED = re.compile(r"(?:is|are) (?:best|tied)|Best .*is not resolved|No setting is best")


def facts(results: Results) -> Facts:
    """Everything that several tables say of an objective."""
    found: Facts = defaultdict(dict)

    def tell(source: str, frame: pd.DataFrame, **columns: str) -> None:
        for row in frame.to_dict("records"):
            cell = "/".join(str(row[n]) for n in ("dataset", "objective") if n in row)
            for fact, column in columns.items():
                found[f"{fact} of {cell}"][source] = row[column]

    board, recommended = results.leaderboard(), results.recommend()
    board = board[board["kind"] == "objective"]
    best = recommended[recommended["kind"] == "best"]
    status = pd.DataFrame(tuned_rows(results.tables, status_rows(results.tables)))
    robust, cost, top = results.robustness(), results.tuning_cost(), results.top()
    level = next(name for name in status if name.startswith("best "))
    tell("status", status, at="at", score=level, seeds="seeds", failed="failed")
    if TUNED in status:
        tell("status", status, tuned=TUNED)
    tell("robustness", robust, at="best_at", score="best", failed="num_failed", spread="sd_star",
         level="best_level", share="share_within")  # fmt: skip
    tell("tuning_cost", cost, level="best_level")
    curve = results.best_of_k()
    ends = {"mean": "mean", "mean_low": "mean_low", "mean_high": "mean_high"}
    tell("robustness", robust, **ends)
    tell("best_of_k", curve[curve["k"] == 1], mean="expected", mean_low="low", mean_high="high")
    if results.trials["seed"].nunique() > 1 and not any(s.raced for s in results.data.sweeps):
        tell("best_of_k", curve[curve["k"] == curve["k"].max()], level="expected")
    if not results.cells:
        ends = {"share_low": "low", "share_high": "high"}
        curve = tolerance(results)
        at = curve[np.isclose(curve["delta"], results.data.within)]
        tell("tolerance", at, share="share", **ends)
        of = robust["objective"].isin(at["objective"])
        tell("robustness", robust[of], **{name: name for name in ends})
    tell("recommend", best, at="at", score="score", seeds="num_seeds", tuned="when_tuned")
    tell("leaderboard", board, at="at", score="score", seeds="num_seeds", spread="sd_star",
         tuned="when_tuned", share="share_within")  # fmt: skip
    costs = results.pareto()
    tell("pareto, by fresh seeds", costs[costs["by_fresh"] == True], at="at", score="score")  # noqa: E712
    tell("pareto", costs[costs["when_tuned"].notna()], at="at", tuned="when_tuned")
    if not results.folder.confirmation.exists():  # the best by the study's seeds
        tell("top", top[top["rank"] == 1], at="at", score="score", seeds="num_seeds")
        by_score = costs.sort_values("score", na_position="first")
        keys = [name for name in ("dataset", "objective") if name in by_score]
        tell("pareto", by_score.groupby(keys).tail(1), score="score", seeds="num_seeds")
    pairs, means = results.compare(tuned=True), results.compare()
    for side in "ab":
        own = {f"{n}_{side}": n for n in ("at", "value")} | {side: "objective"}
        tell("compare --tuned", pairs.rename(columns=own), at="at", tuned="value")
        if complete(results) and not any(map(len, means["note"])):
            tell("compare", means.rename(columns=own), mean="value")
        for stat, fact in {"within": "share", "std": "spread"}.items():
            both = results.compare(stat=stat)
            if complete(results) and not any(map(len, both["note"])):
                tell(f"compare --stat {stat}", both.rename(columns=own), **{fact: "value"})
    return found


def complete(results: Results) -> bool:
    """Whether all objectives are compared on all of their trials."""
    trials = results.trials
    return len(trials) == len(results.plan) and set(trials["status"]) == {"finished"}


def differing(fact: str, by: Mapping[str, Any]) -> bool:
    values = [v for v in by.values() if v not in ("", None) and v == v]
    if fact.startswith("score") and 0 < len(values) < len(by):
        return True  # a best there, and none here
    if all(isinstance(value, int | float) for value in values):
        return bool(values) and not np.allclose(values, values[0], rtol=1e-9, atol=1e-9)
    return len(set(values)) > 1


def sentences(results: Results) -> dict[str, tuple[str, ...]]:
    """By command, what it says of who is best."""
    said = {
        "status": best_when_tuned(results.tables, status_rows(results.tables)),
        "recommend": verdicts.recommend_verdict(results),
        "pareto": verdicts.pareto_verdict(results),
        "robustness": verdicts.robustness_verdict(results),
        "report": first_screen.answer_of(results)[0],
    }
    return {name: tuple(s for s in each if NAMED.search(s)) for name, each in said.items()}


def names_the_winner(said: Sequence[str], pairs: pd.DataFrame) -> bool:
    """Whether the sentences name who wins all pairs, and nobody where nobody does."""
    names = {*pairs["a"], *pairs["b"]}
    wins = {n: ((pairs["a"] == n) | (pairs["b"] == n)) & (pairs["winner"] != n) for n in names}
    best = [name for name, lost in wins.items() if not lost.any()]
    return [s.split(" is best")[0] for s in said if " is best" in s] == best


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=() if n in FAST else pytest.mark.slow) for n in NAMES]
)
def test_no_two_commands_disagree(name, tmp_path):
    results = open_results(make(tmp_path / "study", name))
    with drawing(200):  # the same ones, whoever asks
        assert_agreement(results, name)


def assert_agreement(results: Results, name: str) -> None:
    assert (results.data.images == "new images") == name.endswith(WITH_HITS)
    assert {fact: by for fact, by in facts(results).items() if differing(fact, by)} == {}
    if (results.trials["status"] == "failed").any():
        asked = (results.robustness, results.recommend, results.compare, results.pareto,
                 results.sensitivity, partial(results.compare, tuned=True))  # fmt: skip
        assert all("failed" in " ".join(compute()["note"]) for compute in asked)
    said = sentences(results)
    for sense, tuned in ((" when tuned", True), (" without tuning", False)):
        own = {name: tuple(s for s in each if sense in s) for name, each in said.items()}
        assert len({each for each in own.values() if each}) <= 1
        report = own["report"] or tuple(s for s in said["report"] if " is best:" in s)
        if report and not results.cells:
            assert names_the_winner(report, results.compare(tuned=tuned))


@pytest.mark.slow
def test_fresh_seeds_count_by_every_metric(tmp_path):
    path = make(tmp_path / "study", "overturned")
    own, other = open_results(path), open_results(path, metric="linear_top1")
    keeps = [
        [s for s in verdicts.recommend_verdict(results) if " keeps " in s]
        for results in (own, other)
    ]
    assert len(keeps[1]) == len(keeps[0]) == own.trials["objective"].nunique()
    again = own.folder.confirmation.trials().to_pandas()
    by_hand = again.groupby(["objective", "config"])["linear_top1"].mean()
    table = other.side_table("confirmation").set_index(["objective", "config"])
    assert len(table) == len(by_hand)
    np.testing.assert_allclose(table["fresh"], by_hand[table.index])
    assert table["at"].equals(own.side_table("confirmation").set_index(table.index.names)["at"])


def test_shares_near_the_best_of_new_images_are_those_of_robustness():
    """Where the images that picked the best are known, what they owe to the pick is not counted."""
    results = open_results(Path(__file__).parents[1] / "docs" / "results" / "tau-digits")
    shares = results.robustness().set_index("objective")["share_within"]
    pairs = results.compare(stat="within").query("value_a == value_a")
    assert len(pairs) == 3
    for side in "ab":
        assert (pairs[f"value_{side}"].to_numpy() == shares[pairs[side]].to_numpy()).all()

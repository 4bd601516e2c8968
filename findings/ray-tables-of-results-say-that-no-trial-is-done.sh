#!/usr/bin/env bash
# Ray Tune 2.60.0: in `ResultGrid.get_dataframe()` `done` is False of trials that have ended.
#
# Guess:     a row of the table is the trial's last result, so that `df[df["done"]]` are the trials that
#            came to their end, and the others were cut off.
# Behaviour: a function that reports and returns gets `done` in a result of its own, which repeats the
#            last report and is not written to result.json. The table is read from there: False in each
#            row, with the same `training_iteration` as `Result.metrics`, which has True. With
#            `filter_metric` a row is the trial's best report, `time_total_s` too: that of the best
#            epoch, not of the trial.
# Where it meets this field: sweeps are handed on as this table. Who drops rows that are not done drops
#            all; who adds up `time_total_s` of the filtered table counts a part of the cost.
# Source:    ray/tune/result_grid.py (`get_dataframe`), ray/tune/analysis/experiment_analysis.py
#            (`trial_dataframes`), ray/tune/trainable/function_trainable.py (`RESULT_DUPLICATE`).
#            Way out: `result.metrics["done"]`, `result.error`.
# Seen:      2 trials with 4 reports, the best at the second: `done` of the table [False, False], of the
#            metrics [True, True]; filtered, training_iteration [2, 2] for [4, 4].
#
# Installs ray into a temporary folder, starts it there on one core; fails if the behaviour changes.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet --disable-pip-version-check 'ray[tune]==2.60.0'
cat >"$work/sweep.py" <<'PY'
import sys

import ray
from ray import tune

SCORES = (0.1, 0.3, 0.2, 0.15)


def train(config):
    for score in SCORES:
        tune.report({"acc": score * config["scale"]})


ray.init(
    num_cpus=1, include_dashboard=False, _temp_dir=sys.argv[1] + "/ray",
    logging_level="ERROR", log_to_driver=False,
)  # fmt: skip
storage = tune.RunConfig(storage_path=sys.argv[1] + "/out", verbose=0)
space = {"scale": tune.grid_search([1, 2])}
results = tune.Tuner(train, param_space=space, run_config=storage).fit()
last = results.get_dataframe()
best = results.get_dataframe(filter_metric="acc", filter_mode="max")
by_metrics = [result.metrics["done"] for result in results]
print(
    f"done by the table {[*last['done']]}, by the metrics {by_metrics}; "
    f"training_iteration {[*last['training_iteration']]}, filtered {[*best['training_iteration']]}"
)
assert results.num_errors == 0
assert by_metrics == [True, True]
assert [*last["training_iteration"]] == [4, 4]
assert [*last["done"]] == [False, False], "changed: done of the table"
assert [*best["training_iteration"]] == [2, 2], "changed: rows of the filtered table"
assert (best["time_total_s"] < last["time_total_s"]).all(), "changed: time of the filtered table"
print("as described")
PY
"$work/venv/bin/python" "$work/sweep.py" "$work" 2>/dev/null | tail -n 2

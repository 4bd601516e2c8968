"""The values that a metric of another tool can take, as its name and its scores say."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np

from clsweep.analysis.sweep import Sweep

# Words of metrics that are shares of 1 or 100.
_SHARES = {"acc", "accuracy", "accuracies", "top1", "top5", "acc1", "acc5"}
_SHARES |= {"precision", "recall", "f1", "auc", "auroc"}
_ERRORS, _RATES = {"error", "errors", "err"}, {"rate", "top1", "top5"}
_PERCENT = {"percent", "percentage", "pct"}
# Words of what is made of shares and has other limits.
_OTHERS = {"loss", "gain", "gap", "drop", "delta", "diff", "difference", "change", "improvement"}
_OTHERS |= {"log", "logit", "relative", "ratio"}


def limits_by_name(
    metric: str, mode: str, sweeps: Sequence[Sweep]
) -> tuple[tuple[float, float] | None, str]:
    """Limits of a metric that the catalog does not know, and a note on them; None where its name
    does not say that it is a share, or a score is none.

    A name is told by its words: `val/Acc@1`, `testAccuracy` and `top-1` are shares where "max" is
    best, `top1_err` and `error_rate` where "min" is, and whatever has a percent sign. `account`, a
    mean squared `error`, `accuracy_gain` and `acc_loss` say nothing. Scores from 0 to 1 that are
    not these ends alone are fractions of 1; others from 0 to 100, and those of a percent sign, are
    percent.
    """
    words = _words(metric)
    is_error, is_percent = bool(words & _ERRORS), "%" in metric or bool(words & _PERCENT)
    is_share = words & _RATES if is_error else words & _SHARES
    is_known = is_percent or (is_share and is_error == (mode == "min"))
    measured = [sweep.sign * sweep.measured.scores.ravel() for sweep in sweeps]
    scores = np.concatenate(measured)[np.isfinite(np.concatenate(measured))]
    is_within = len(scores) > 0 and scores.min() >= 0 and scores.max() <= 100
    if words & _OTHERS or not (is_known and is_within):
        return None, ""
    is_fraction = not is_percent and scores.max() <= 1 and not np.isin(scores, (0, 1)).all()
    end, kind = (1.0, "fractions of 1") if is_fraction else (100.0, "percent")
    return (0.0, end), f"{metric} is read as {kind} by its name: intervals end at 0 and {end:g}"


def _words(name: str) -> set[str]:
    """`valAcc@1` as val, acc and acc1."""
    spaced = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", " ", name).lower()
    words = re.findall(r"[a-z]+", spaced)
    numbered = re.findall(r"([a-z]+)[-_@ ]?(\d+)", spaced)
    return {*words, *(f"{word}{digits}" for word, digits in numbered)}

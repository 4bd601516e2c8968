"""What scores without labels would have picked, and what that loses."""

from __future__ import annotations

import pandas as pd

from clsweep.analysis import picks as analysis
from clsweep.catalog.rows import Row
from clsweep.display.numbers import is_number
from clsweep.findings.material import label_free_scores
from clsweep.questions.answers import Answers
from clsweep.questions.column import Column, Question, half, level, measured, share, whole


def picks(of: Answers) -> pd.DataFrame:
    """One row per objective and score, see `analysis.picks`; none where the metric needs no labels
    itself.
    """
    found = of.material
    return analysis.picks(
        found.trials,
        found.spaces,
        metric=found.metric,
        scores=label_free_scores(found.metric),
        yardsticks=found.yardsticks,
    )


def _pick(row: Row) -> str:
    """The setting of a configuration, behind its objective where it is one of several."""
    if not is_number(row["config"]):
        return ""
    return " ".join([row["of"]] * (row["of"] != row["objective"]) + [row["at"]])


QUESTION = Question(
    name="picks",
    title="Scores without labels as judges of {metric}",
    heading="What scores without labels would have picked, by {metric}, with 95 % intervals"
    "{images}",
    table=picks,
    ahead=True,
    columns=(
        Column("objective"),
        Column("score"),
        Column("configs", "num_configs", spare=3),
        Column("config", whole("config"), spare=4),
        Column("picks", _pick, "the setting with the best mean of the score"),
        Column(
            "best or picked",
            level("best", half("regret", "")),
            "the higher level of both, the best without the luck of its own pick",
            spare=2,
        ),
        Column("picked", level("picked", half("regret", "")), spare=1),
        Column(
            "loses",
            measured("regret", ""),
            "what the best is above picked, among the configurations that were tried",
        ),
        Column(
            "rank correlation",
            share("rho", "rho", most=2),
            "of score and metric on the scored images. It is 1 where better by the one is better "
            "by the other",
            spare=5,
        ),
    ),
    levels="picked",
    caption="Intervals: 95 %{images}. {columns}.",
    formulas={"picks": analysis.COLUMNS},
)

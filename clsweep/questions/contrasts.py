"""What a study asked by name before it ran."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from clsweep.analysis import contrast as analysis
from clsweep.analysis.reasons import Reason, note
from clsweep.analysis.sweep import TRIAL_KEYS, Sweep, as_far_as_levels
from clsweep.catalog import METRIC
from clsweep.catalog.rows import Row
from clsweep.display.cells import records_of
from clsweep.display.theme import GREY
from clsweep.errors import MAX_LINES, RequestError, nearest
from clsweep.findings.asked import added
from clsweep.findings.material import Material
from clsweep.findings.notes import cause, status
from clsweep.questions import charts
from clsweep.questions.answers import Answers, Asked
from clsweep.questions.charts import alt
from clsweep.questions.column import Column, Question
from clsweep.questions.model import Figure, Open, Sentences
from clsweep.questions.words import counted, interval, known, needed, number

VERDICTS = {"shown": "shown", "equivalent": "within the margin", "excluded": "less than published"}


def contrasts(of: Answers, *, asked: Mapping[str, Any] | None = None) -> pd.DataFrame:
    """One row per contrast of the study, or asked beside them: see `analysis.contrast`."""
    material = of.material
    chosen = added(asked, material) if asked else material.contrasts
    # metrics: the columns of numbers that are no settings and name no trial
    others = {*material.params, *TRIAL_KEYS}
    numbers = [str(n) for n in material.trials.select_dtypes(["number"]) if n not in others]
    for each in chosen:
        require_known("objective", each.of, [sweep.objective for sweep in material.sweeps])
        require_known("metric", [each.metric], numbers)
    metrics = dict.fromkeys(each.metric for each in chosen)
    measured = {name: sweeps_by(material, name) for name in metrics}
    found, ends = analysis.contrast_table(chosen, measured), ["low", "high"]
    for name, sweeps in measured.items():
        these = found["metric"] == name
        found.loc[these, ends] = as_far_as_levels(found.loc[these, ends], sweeps)
    if material.images == "new images":
        alone = {m for m in metrics if m in METRIC and m not in (*material.hits, material.metric)}
        these = found["metric"].isin(alone) & found["low"].notna()
        notes = zip(found["note"], these, strict=True)
        found["note"] = [(*n, note(Reason.THESE_IMAGES)) if is_so else n for n, is_so in notes]
    return found


def require_known(part: str, names: Sequence[str], known: Sequence[str]) -> None:
    """Raises RequestError for a name that nobody has."""
    for name in names:
        if name not in known:
            few = f" Expected one of: {', '.join(known)}" if len(known) <= MAX_LINES else ""
            raise RequestError(f"unknown {part} '{name:.80}'.{nearest(name, known)}{few}")


def sweeps_by(material: Material, metric: str) -> tuple[Sweep, ...]:
    """The sweeps of a study with any metric as their score."""
    if metric == material.metric:
        return material.spaces
    return tuple(
        analysis.scored_by(sweep, material.trials, metric, material.hits.get(metric))
        for sweep in material.spaces
    )


def verdict(row: Row) -> str:
    """`shown, less than published`, `within the margin`, `not resolved`."""
    parts = [text for name, text in VERDICTS.items() if row[name]]
    if _is_turned(row):
        parts[-1] = "the other way"
    return ", ".join(parts) or status(row["reason"])


def _is_turned(row: Row) -> bool:
    """Whether an effect is shown against the published one."""
    return bool(row["shown"] and row["excluded"] and row["estimate"] * row["published"] < 0)


def sentence(row: Row) -> str:
    """One contrast in words: the verdict first, then the number."""
    name, seen = row["contrast"], _seen(row)
    if not known(row["low"]):
        return Open(f"{name} is not resolved{f' ({seen})' if seen else ''}: {cause(row)}.")
    number_of, published = f"{row['what']} is {seen}", number(row["published"])
    less = f" An effect as large as the published {published} is excluded." * bool(row["excluded"])
    if _is_turned(row):
        less = f" The published {published} goes the other way."
    if row["shown"]:
        small = ", and within its margin" if row["equivalent"] else ""
        return f"{name} is shown{small}: {number_of}.{less}"
    if row["equivalent"]:
        return f"{name} is within its margin of {number(row['margin'])}: {number_of}.{less}"
    if row["excluded"]:
        open_ = "Whether there is any effect is not resolved."
        return f"{name} is less than the published {published}: {number_of}. {open_}"
    takes = f"; it needs {it}" if (it := needed(row)) else ""
    return Open(f"{name} is not resolved: {number_of}{takes}.")


def _seen(row: Row) -> str:
    return _number(row["estimate"]) and number(row["estimate"]) + interval(row["low"], row["high"])


def summary(rows: Sequence[Row]) -> Sentences:
    """How many contrasts are answered, in one sentence; none where nothing was asked beforehand."""
    before = [row for row in rows if not row["added_after"]]
    if not before:
        return ()
    told = [verdict(row) for row in before if any(row[name] for name in VERDICTS)]
    kinds = Counter(part for text in told for part in text.split(", "))
    parts = ", ".join(f"{num} {kind}" for kind, num in kinds.items())
    what = counted(len(before), "contrast", "contrasts")
    are = "is" if len(told) == 1 else "are"
    return (f"Of {what} asked beforehand {len(told)} {are} answered{f': {parts}' * bool(parts)}.",)


def _figure(asked: Asked) -> Figure | None:
    """The contrasts of the study's own metric, with what was published."""
    table = asked.ask(contrasts)
    rows = table[(table["metric"] == asked.material.metric) & table["low"].notna()]
    if rows.empty:
        return None
    rows = rows.reset_index(drop=True)
    frame = charts.intervals(rows, "estimate", "low", "high")
    frame["row"], frame["published"] = rows["contrast"], rows["published"].astype(float)
    frame["resolved"] = rows[list(VERDICTS)].any(axis=1)
    x: Any = charts.plain_x(charts.in_points("effect", asked.material), zero=True, padding=8)
    chart: Any = charts.forest(frame, asked.material, x, line=0.0)
    if frame["published"].notna().any():
        marks = alt.Chart(frame[frame["published"].notna()]).mark_point(
            shape="diamond", size=90, filled=False, color=GREY, yOffset=charts.LOWER
        )
        chart = alt.layer(chart, marks.encode(charts.rows_of(frame["row"]), x=alt.X("published:Q")))
    return Figure(
        name="contrasts",
        title="What was asked",
        caption="A coloured row is answered, a grey one is not resolved. Diamonds are what was "
        f"published. {charts.bands_text(frame, asked.material, 'Bars')}",
        chart=chart,
        data=rows[["contrast", "estimate", "low", "high", "published", "margin"]],
    )


QUESTION = Question(
    name="contrasts",
    title="What was asked by name, with 95 % intervals{images}",
    table=contrasts,
    columns=(
        Column("contrast"),
        Column("what", spare=5, means="what is subtracted from what"),
        Column("metric", lambda row: row["metric"], spare=4),
        Column("effect", _seen),
        Column("p Holm", "p_holm", spare=2),
        Column("margin", lambda row: _number(row["margin"]), spare=1,
               means="a smaller effect counts as none"),
        Column("published", lambda row: _number(row["published"])),
        Column("seeds", "num_seeds", spare=3),
        Column("needs seeds", lambda row: needed(row, "needs_seeds"), spare=6,
               means="how many would show it in four of five studies, an 80 % interval"),
        Column("needs configs", lambda row: needed(row, "needs_configs"), spare=7),
        Column("verdict", verdict, "corrected for all contrasts (Holm). Shown: there is an effect"),
    ),
    intro="a side is the mean of all settings with the values asked for",
    say=lambda asked: tuple(map(sentence, records_of(asked.ask(contrasts)))),
    draw=lambda asked: [_figure(asked)],
    formulas={"contrasts": analysis.CONTRAST_COLUMNS},
)  # fmt: skip


def _number(value: float) -> str:
    return number(value) if known(value) else ""

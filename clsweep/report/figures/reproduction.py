"""A paper's points beside the measured ones, along the setting that its table sweeps."""

from __future__ import annotations

from collections.abc import Sequence

import altair as alt
import pandas as pd

from clsweep.analysis.reference import Verdict
from clsweep.findings.material import Material
from clsweep.findings.reproduction import Layout
from clsweep.report.figures.encodings import (
    bands_text,
    interval_tips,
    layers,
    legend_place,
    numbers,
    objectives,
    param_axis,
    param_title,
    score_axis,
    slugs,
    tooltip,
)
from clsweep.report.model import Figure

LONG = 18  # letters of a name of which four do not fit side by side


def reproduction_figures(parts: Sequence[Layout], material: Material) -> list[Figure]:
    """A figure of each measured part of a paper's table that has two numbers across."""
    curves = [(part, _points(part)) for part in parts if part.is_measured]
    drawn = [(part, frame) for part, frame in curves if frame["x"].nunique() > 1]
    names = slugs("paper", [f"{part.item} {part.title}" for part, _ in drawn])
    return [
        _figure(name, part, frame, material)
        for name, (part, frame) in zip(names, drawn, strict=True)
    ]


def _points(part: Layout) -> pd.DataFrame:
    """Rows with a place on the axis; none where names stand across."""
    rows = part.rows.assign(at=pd.to_numeric(part.rows[part.across], errors="coerce"))
    columns = {"x": "at", "printed": "value", "y": "measured", "low": "low", "high": "high"}
    frame = pd.DataFrame({key: numbers(rows, column) for key, column in columns.items()})
    frame.insert(0, "objective", part.rows["objective"].to_list())
    frame.insert(1, "label", list(part.labels))
    settings = [
        label.removeprefix(name).removeprefix(", ")
        for label, name in zip(part.labels, frame["objective"], strict=True)
    ]
    frame.insert(2, "setting", settings)
    frame["verdict"] = rows["verdict"].to_numpy()
    return frame.dropna(subset=["x"]).sort_values("x", kind="stable")


def _figure(name: str, part: Layout, frame: pd.DataFrame, material: Material) -> Figure:
    metric = str(part.rows["metric"].iloc[0])
    param = param_title(material, part.across)
    place = ", ".join(str(part.rows[n].iloc[0]) for n in ("dataset", "encoder"))
    return Figure(
        name=name,
        title=f"{part.item}: {metric} against {param}, {place.strip(', ')}",
        caption=f"Filled points: measured. {bands_text(frame, 'Bars')} Open points, dashed: "
        f"printed in {part.paper}.{_scale(frame)}",
        chart=layers(
            _charts(frame, part.across, metric, material),
            describe=f"Measured and printed {metric} against {part.across}; two lines an "
            "objective.",
        ),
        data=frame.drop(columns="setting").rename(columns={"x": part.across, "y": "measured"}),
        settings=(part.across,),
    )


def _scale(frame: pd.DataFrame) -> str:
    apart = (frame["verdict"] == Verdict.OTHER_SCALE).any()
    return " The scales differ: see the notes." if apart else ""


def _columns(labels: Sequence[str]) -> dict[str, int]:
    """Fewer columns of a legend with long names."""
    return {"columns": 2, "labelLimit": 290} if max(map(len, labels)) > LONG else {}


def _charts(frame: pd.DataFrame, param: str, metric: str, material: Material) -> list[alt.Chart]:
    labels, known = list(dict.fromkeys(frame["objective"])), objectives(material)
    kinds = list(dict.fromkeys(frame["setting"]))
    hue = alt.Color(
        "objective",
        type="nominal",
        title=None,
        scale=alt.Scale(domain=[*known, *(label for label in labels if label not in known)]),
        legend=alt.Legend(**legend_place() | _columns(labels), values=labels),
    )
    form: alt.Shape | alt.ShapeValue = alt.ShapeValue("circle")
    if len(kinds) > 1:
        scale, legend = alt.Scale(domain=kinds), alt.Legend(**legend_place() | _columns(kinds))
        form = alt.Shape("setting", type="nominal", title=None, scale=scale, legend=legend)
    x = param_axis(material, param, frame["x"].to_numpy(dtype=float), ticks=True)
    tips = [
        tooltip("label", "objective", number=False),
        tooltip("x", param),
        *interval_tips("measured"),
        tooltip("printed", "printed"),
        tooltip("verdict", "verdict", number=False),
    ]
    base = alt.Chart(frame).encode(detail="label:N")
    measured = base.transform_filter("isValid(datum.y)")
    bars = base.transform_filter("isValid(datum.low) && isValid(datum.high)")

    def y(field: str) -> alt.Y:
        return score_axis(metric, field)

    return [
        base.mark_line(strokeWidth=1.5, strokeDash=[4, 4], opacity=0.8).encode(
            x, y("printed"), hue
        ),
        base.mark_point(filled=False, size=60, opacity=1).encode(
            x, y("printed"), hue, form, tooltip=tips
        ),
        base.mark_line(strokeWidth=2).encode(x, y("y"), hue),  # broken where nothing is measured
        bars.mark_rule(strokeWidth=2).encode(x, y("low"), alt.Y2("high"), hue),
        measured.mark_point(filled=True, size=70, opacity=1).encode(
            x, y("y"), hue, form, tooltip=tips
        ),
    ]

"""Colours of charts on a light and a dark page, and charts as pictures. vl-convert makes SVG and
PNG, and the script that draws charts on a page. It holds the interpreter while it works, so other
processes draw where there are some.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, NamedTuple

from clsweep.display.printing import legible
from clsweep.processes import submit, submit_once

Spec = dict[str, Any]

FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', Arial, sans-serif"
WIDTH = 640  # pixels of a picture, where a page fills its column
GREY = "#8b8f97"  # what is not resolved, and lines of reference: legible on white and on black
SHAPES = ("circle", "square", "triangle-up", "diamond", "cross", "triangle-down", "triangle-right")


@dataclass(frozen=True, kw_only=True)
class _Palette:
    """`category`: the hues of Okabe and Ito (2008), their lightness chosen for the page so that any
    two stay apart with normal sight, deuteranopia and protanopia. Eight colours and seven shapes
    are taken in turn: 56 objectives differ.
    """

    text: str
    soft: str
    line: str
    page: str
    category: Sequence[str]
    ordinal: Sequence[str]


# Even steps of lightness, as viridis.
RAMP = ("#3b1f6b", "#33558b", "#24868e", "#3dbc74", "#c9de4d")
_DAY = ("#1579ee", "#bf7804", "#0fa15f", "#99477a", "#5f3100", "#2e9ec4", "#2b2222", "#652784")
LIGHT = _Palette(
    text="#1c1f24",
    soft="#565b64",
    line="#dfe2e7",
    page="#ffffff",
    category=_DAY,
    ordinal=("#94c9e8", "#52a3d1", "#1f78ad", "#10568a", "#062f55"),
)
_NIGHT = ("#79c1f9", "#d68350", "#2ae795", "#cb49a8", "#e77b06", "#b1ecfa", "#b4a0a2", "#a154d9")
DARK = _Palette(
    text="#eceef2",
    soft="#aeb4bf",
    line="#363b45",
    page="#15181d",
    category=_NIGHT,
    ordinal=("#2f6690", "#3f8cc0", "#63b0de", "#9ad0f0", "#d9effc"),
)


def themed(spec: Spec, *, dark: bool, background: str | None = "transparent") -> Spec:
    """A copy of a Vega-Lite spec with fonts and colours for a light or a dark page. `background`
    "transparent" lets that show through; None is for files that stand alone.
    """
    palette = DARK if dark else LIGHT
    fit = {"type": "fit-x", "contains": "padding"}
    look = {"background": background or palette.page, "autosize": fit, "config": _config(palette)}
    return {**spec, **look}


def legible_spec(value: Any) -> Any:
    """A spec, or a part of one, whose every text is `legible`, and every title one line: Vega makes
    expressions of titles.
    """
    if isinstance(value, str):
        return legible(value)
    if isinstance(value, Mapping):
        parts = {legible_spec(key): legible_spec(part) for key, part in value.items()}
        if isinstance(title := parts.get("title"), str):
            parts["title"] = re.sub(r"[\r\n]+", " ", title)
        return parts
    return [legible_spec(part) for part in value] if isinstance(value, list | tuple) else value


def to_svg(spec: Spec, *, width: int = WIDTH) -> str:
    """A themed and legible spec as SVG text, `width` pixels wide."""
    import vl_convert

    # `6.1` of `https://vega.github.io/schema/vega-lite/v6.1.0.json`, for which Altair wrote it.
    version = ".".join(str(spec["$schema"]).rpartition("/v")[2].split(".")[:2])
    return vl_convert.vegalite_to_svg({**spec, "width": width}, vl_version=version)


class Picture(NamedTuple):
    svg: str
    png: bytes  # two pixels for each of the SVG's


def draw_chart(spec: Spec) -> Future[Picture]:
    """Draw a themed spec: beside other work within `worker_processes`, else at once."""
    return submit(_drawn, spec)


def scripts() -> Future[str]:
    """Vega, Vega-Lite and Vega-Embed as one script, made likewise."""
    return submit_once(_bundle)


def _drawn(spec: Spec) -> Picture:
    import vl_convert

    svg = to_svg(spec)
    return Picture(svg, vl_convert.svg_to_png(svg, scale=2))


@functools.cache
def _bundle() -> str:
    import vl_convert

    return vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;")


def _config(palette: _Palette) -> Spec:
    return {
        "font": FONT,
        "view": {"stroke": None},
        "padding": {"left": 4, "right": 10, "top": 6, "bottom": 4},
        "axis": {
            "labelColor": palette.soft,
            "titleColor": palette.text,
            "gridColor": palette.line,
            "domainColor": palette.soft,
            "tickColor": palette.soft,
            "labelFontSize": 12,
            "titleFontSize": 12,
            "titleFontWeight": 500,
            "titlePadding": 8,
            "labelLimit": 150,
        },
        "legend": {
            "labelColor": palette.text,
            "titleColor": palette.text,
            "labelFontSize": 12,
            "titleFontSize": 12,
            "titleFontWeight": 500,
            "symbolSize": 80,
            "layout": {"top": {"direction": "vertical"}},  # two legends, one below the other
        },
        "range": {
            "category": list(palette.category),
            "ordinal": list(palette.ordinal),
            "ramp": list(RAMP),
            "heatmap": list(RAMP),
            "symbol": list(SHAPES),
        },
        "text": {"color": palette.text, "fontSize": 11},
        "style": {  # marks name their part, so that no chart holds a colour of one page
            "ink": {"fill": palette.text, "fontSize": 12},
            "soft": {"fill": palette.soft, "fontSize": 11},
            "missing": {"fill": palette.line},
        },
    }

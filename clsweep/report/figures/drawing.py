"""Pictures of charts, and the script that draws charts on a page. vl-convert holds the interpreter
while it works, so other processes draw where there are some.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from concurrent.futures import Future
from typing import Any, NamedTuple

from clsweep.processes import beside, beside_once


class Picture(NamedTuple):
    svg: str
    png: bytes


def draw(spec: Mapping[str, Any]) -> Future[Picture]:
    """Draw a themed spec: beside other work within `processes_beside`, else at once."""
    return beside(_drawn, spec)


def scripts() -> Future[str]:
    """Vega, Vega-Lite and Vega-Embed as one script, made likewise."""
    return beside_once(_bundle)


def _drawn(spec: Mapping[str, Any]) -> Picture:
    from clsweep.report.figures.theme import svg_to_png, to_svg

    svg = to_svg(spec)
    return Picture(svg, svg_to_png(svg))


@functools.cache
def _bundle() -> str:
    import vl_convert

    return vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;")

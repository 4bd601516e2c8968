"""Pictures of charts, and the script that draws charts on a page, made beside the statistics: in
other processes, as vl-convert holds the interpreter while it works.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from concurrent.futures import Future
from typing import Any, NamedTuple

from loky import ProcessPoolExecutor, get_reusable_executor  # type: ignore[import-untyped]

from clsweep.machine import num_cores

MOST_PROCESSES = 2  # a large report's pictures are ready before its statistics


class Picture(NamedTuple):
    svg: str
    png: bytes


def draw(spec: Mapping[str, Any]) -> Future[Picture]:
    """Have a themed spec drawn."""
    found: Future[Picture] = _pool().submit(_picture, spec)
    return found


@functools.cache
def scripts() -> Future[str]:
    """Vega, Vega-Lite and Vega-Embed as one script."""
    found: Future[str] = _pool().submit(_bundle)
    return found


def _pool() -> ProcessPoolExecutor:
    return get_reusable_executor(max_workers=min(MOST_PROCESSES, num_cores()))


def _picture(spec: Mapping[str, Any]) -> Picture:
    from clsweep.report.figures.theme import svg_to_png, to_svg

    svg = to_svg(spec)
    return Picture(svg, svg_to_png(svg))


def _bundle() -> str:
    import vl_convert

    return vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;")

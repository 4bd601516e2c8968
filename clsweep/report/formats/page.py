"""The report as one page: styles, charts and what draws them are inside, so it works offline."""

from __future__ import annotations

import base64
import functools
import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from clsweep.display.cells import Cells, cells_of
from clsweep.display.text import legible
from clsweep.report.figures.theme import legible_spec, themed
from clsweep.report.model import Figure, Report, Table, check

MAX_ROWS = 200  # of one table on the page; all are in its files
MAX_NUMBERS = 60  # rows of the numbers behind a figure

_LINE_SEPARATORS = {0x2028: " ", 0x2029: " "}
# JSON between <script> tags: nothing in it may look like a tag, nor be a line break that JavaScript
# knows and JSON not.
_ESCAPES = str.maketrans({mark: f"\\u{ord(mark):04x}" for mark in "<>&\u2028\u2029"})


@dataclass(frozen=True, kw_only=True)
class Drawing:
    """A figure as the page needs it: `spec` is JSON, the chart for a light page and what a dark one
    changes of it.
    """

    figure: Figure
    spec: Markup
    numbers: Cells


def render_page(report: Report) -> str:
    """The report as one HTML page that needs no other file and no network.

    Every text of the report is escaped. The page forbids itself whatever is not in it
    (Content-Security-Policy): it runs the two scripts whose hashes it names, and expressions of
    charts are interpreted, not compiled.

    Raises:
        ValueError: a name of a section, table or figure is unfit or stands twice, or a chart holds
            a number that is not finite.
    """
    check(report)
    templates = _templates()
    scripts = [vega(), _source(templates, "page.js")]
    return templates.get_template("index.html.j2").render(
        report=report,
        policy=_policy(scripts),
        style=Markup(_source(templates, "page.css")),
        scripts=[Markup(script) for script in scripts],
        drawings={
            figure.name: _drawing(figure)
            for section in report.sections
            for figure in section.figures
        },
        tables={
            table.name: _table(table) for section in report.sections for table in section.tables
        },
        versions=vega_versions(),
    )


@functools.cache
def vega() -> str:
    """Vega, Vega-Lite and Vega-Embed as one script that may stand between <script> tags."""
    import vl_convert

    script = vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;").replace("\r\n", "\n")
    return script.replace("</script", "<\\/script").replace("<!--", "<\\!--")


def vega_versions() -> dict[str, str]:
    """Versions of what draws the charts, in the page and in the files."""
    import vl_convert

    return {
        "vega": vl_convert.get_vega_version(),
        "vega-lite": vl_convert.get_vegalite_versions()[-1],
    }


def spec_of(figure: Figure) -> dict[str, Any]:
    """The chart as Vega-Lite without a theme, however many rows its data has; readers of screens
    get its title.

    Raises:
        ValueError: it holds a number that is not finite.
    """
    import altair as alt

    with alt.data_transformers.enable("default", max_rows=None):
        spec = {"description": figure.title, **figure.chart.to_dict()}
    # Vega takes a title into an expression, where a line separator would be the end of the line.
    text = json.dumps(spec, ensure_ascii=False, allow_nan=False).translate(_LINE_SEPARATORS)
    return legible_spec(json.loads(text))


def escape_json(value: Any) -> Markup:
    """JSON that may stand between <script> tags."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return Markup(text.translate(_ESCAPES))


def _drawing(figure: Figure) -> Drawing:
    spec = spec_of(figure)
    light, dark = (themed(spec, dark=is_dark) for is_dark in (False, True))
    # The data, most of a chart, are the same for both.
    changed = {
        key: value
        for key, value in dark.items()
        if value is not spec.get(key) and value != light.get(key)
    }
    both = escape_json({"light": light, "dark": changed})
    cells = cells_of(figure.data, limit=MAX_NUMBERS, digits=None, settings=figure.settings)
    return Drawing(figure=figure, spec=both, numbers=cells)


def _table(table: Table) -> Cells:
    return cells_of(table.shown, limit=MAX_ROWS)


def _policy(scripts: Iterable[str]) -> str:
    hashes = [
        base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() for script in scripts
    ]
    return "; ".join(
        [
            "default-src 'none'",
            "script-src " + " ".join(f"'sha256-{digest}'" for digest in hashes),
            # Vega sets the style of marks and adds that of its tooltip
            "style-src 'unsafe-inline'",
            "img-src data:",
            "base-uri 'none'",
            "form-action 'none'",
        ]
    )


@functools.cache
def _templates() -> Environment:
    return Environment(
        loader=PackageLoader("clsweep.report", "templates"),
        autoescape=True,
        finalize=_legible,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def _legible(value: Any) -> Any:
    """Texts without characters that HTML forbids; what is marked as HTML or script stays as it
    is.
    """
    return legible(value) if isinstance(value, str) and not isinstance(value, Markup) else value


def _source(templates: Environment, name: str) -> str:
    assert templates.loader is not None
    return templates.loader.get_source(templates, name)[0]

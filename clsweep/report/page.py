"""The report as one page, which works offline; and a table as a file, CSV or Parquet."""

from __future__ import annotations

import base64
import functools
import hashlib
import json
from collections.abc import Iterable
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
from jinja2 import Environment, PackageLoader, StrictUndefined, pass_context
from jinja2.runtime import Context
from markupsafe import Markup, escape

from clsweep.display.cells import frame_cells
from clsweep.display.printing import legible, spreadsheet
from clsweep.display.theme import scripts, themed
from clsweep.report.content import Report
from clsweep.report.glossary import pattern, term_of
from clsweep.statistics.report_objects import Figure, Table, as_slug

MAX_INSIDE = 150_000  # bytes of a CSV file that the page holds; a larger one lies beside it

# JSON between <script> tags: nothing in it may look like a tag, nor be a line break that JavaScript
# knows and JSON not.
_ESCAPES = str.maketrans({mark: f"\\u{ord(mark):04x}" for mark in "<>&\u2028\u2029"})


def render_page(report: Report) -> str:
    """The report as one HTML page that needs no other file and no network, every text escaped.

    The page forbids itself whatever is not in it (Content-Security-Policy): it runs the two scripts
    whose hashes it names, and expressions of charts are interpreted, not compiled. ValueError
    where a chart holds a number that is not finite.
    """
    templates = _templates()
    scripts = [*([vega()] if report.own_figures else []), _source(templates, "page.js")]
    return templates.get_template("index.html.j2").render(
        report=report,
        policy=_policy(scripts),
        style=Markup(_source(templates, "page.css")),
        scripts=[Markup(script) for script in scripts],
        drawings={figure.name: _drawing(figure, report) for figure in report.own_figures},
        tables={t.name: _table(t, report) for t in report.tables if not t.is_apart},
        versions=vega_versions(),
    )


@functools.cache
def vega() -> str:
    """Vega, Vega-Lite and Vega-Embed as one script that may stand between <script> tags."""
    script = scripts().result().replace("\r\n", "\n")
    return script.replace("</script", "<\\/script").replace("<!--", "<\\!--")


def vega_versions() -> dict[str, str]:
    """Versions of what draws the charts, in the page and in the files."""
    import vl_convert

    lite = vl_convert.get_vegalite_versions()[-1]
    return {"vega": vl_convert.get_vega_version(), "vega-lite": lite}


def _drawing(figure: Figure, report: Report) -> dict[str, Any]:
    """A figure for the page: `spec` is JSON, the light chart and what a dark one changes of it."""
    spec = figure.spec
    light, dark = (themed(spec, dark=is_dark) for is_dark in (False, True))
    # The data, most of a chart, are the same for both.
    own = {key: value for key, value in dark.items() if value is not spec.get(key)}
    changed = {key: value for key, value in own.items() if value != light.get(key)}
    looks = {"light": light, "dark": changed}
    text = json.dumps(looks, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    csv = _download(f"figures/{figure.name}.csv", report.marked(figure.data))
    return {"figure": figure, "spec": Markup(text.translate(_ESCAPES)), "csv": csv}


def _table(table: Table, report: Report) -> dict[str, Any]:
    """A table as the page needs it; `left` rows are in its file alone."""
    cells = frame_cells(table.shown, limit=table.limit)
    csv = _download(f"tables/{table.name}.csv", report.marked(table.frame))
    return {"cells": cells, "left": cells.left, "csv": csv}


def _download(place: str, frame: pd.DataFrame) -> dict[str, str]:
    """A file that the page holds as a data URI, or, where that is empty, that lies at `place`."""
    # Of a large table the CSV would not fit: it is not even made.
    data = to_csv(frame) if frame.size <= MAX_INSIDE // 4 else b""
    text = base64.b64encode(data).decode() if 0 < len(data) <= MAX_INSIDE else ""
    uri = f"data:text/csv;charset=utf-8;base64,{text}" if text else ""
    return {"name": place.rpartition("/")[2], "place": place, "uri": uri}


def _policy(scripts: Iterable[str]) -> str:
    digests = [hashlib.sha256(script.encode()).digest() for script in scripts]
    hashes = [f"'sha256-{base64.b64encode(digest).decode()}'" for digest in digests]
    # Vega sets the style of marks and adds that of its tooltip.
    inside = "style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'"
    return f"default-src 'none'; script-src {' '.join(hashes)}; {inside}"


@functools.cache
def _templates() -> Environment:
    templates = Environment(
        loader=PackageLoader("clsweep.report", "templates"),
        autoescape=True,
        finalize=_legible,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    templates.filters |= {"explained": _explained, "anchor": _anchor}
    return templates


@pass_context
def _explained(context: Context, text: str) -> Markup:
    """A text, escaped, in which the first mention of each term links to the glossary."""
    out, end, terms = Markup(), 0, context["report"].terms
    left = set(terms)
    text = legible(text)
    for hit in pattern().finditer(text):
        name = term_of(hit[0])
        if name not in left:
            continue
        left.remove(name)
        link = Markup('<a class="term" href="#{}" title="{}">{}</a>')
        out += escape(text[end : hit.start()]) + link.format(_anchor(name), terms[name], hit[0])
        end = hit.end()
    return out + escape(text[end:])


def _anchor(term: str) -> str:
    return f"term-{as_slug(term)}"


def _legible(value: Any) -> Any:
    """Texts without characters that HTML forbids; what is marked as HTML stays as it is."""
    return legible(value) if isinstance(value, str) and not isinstance(value, Markup) else value


def _source(templates: Environment, name: str) -> str:
    assert templates.loader is not None
    return templates.loader.get_source(templates, name)[0]


# The files beside it


def to_csv(frame: pd.DataFrame) -> bytes:
    """A frame as CSV, UTF-8, in full precision; no text is a formula to a spreadsheet."""
    safe = frame.rename(columns=lambda name: spreadsheet(str(name)))
    for i, dtype in enumerate(frame.dtypes):
        is_time = pd.api.types.is_datetime64_any_dtype(dtype)
        if not (is_time or pd.api.types.is_numeric_dtype(dtype)):
            # texts repeat: each is looked at once, where all are texts
            column = frame.iloc[:, i]
            is_text = isinstance(dtype, pd.StringDtype)
            known = {value: spreadsheet(value) for value in column.unique()} if is_text else {}
            safe.isetitem(i, [known.get(v, v) if is_text else spreadsheet(v) for v in column])
    out = pa.BufferOutputStream()
    pyarrow.csv.write_csv(_arrow(safe), out)  # ten times as fast as pandas
    return out.getvalue().to_pybytes()


def to_parquet(frame: pd.DataFrame) -> bytes:
    """A frame as Parquet; columns of objects that are not of one simple type are text."""
    out = pa.BufferOutputStream()
    pyarrow.parquet.write_table(_arrow(frame.rename(columns=str)), out)
    return out.getvalue().to_pybytes()


def _arrow(frame: pd.DataFrame) -> pa.Table:
    typed = frame.copy(deep=False)
    for i, dtype in enumerate(frame.dtypes):
        if pd.api.types.is_object_dtype(dtype):
            column = frame.iloc[:, i]
            values = [None if gone else v for v, gone in zip(column, column.isna(), strict=True)]
            types = {type(value) for value in values if value is not None}
            if len(types) != 1 or not types <= {str, bool, int, float}:
                values = [None if value is None else str(value) for value in values]
            typed.isetitem(i, values)
    return pa.Table.from_pandas(typed, preserve_index=False)

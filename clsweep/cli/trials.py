"""The rows that the commands print about trials, and what is said of those on fresh seeds."""

from __future__ import annotations

import ast
import keyword
import math
import re
import statistics
from collections.abc import Sequence
from contextlib import suppress
from decimal import Decimal
from typing import Any

import pandas as pd

from clsweep.catalog import METRICS
from clsweep.catalog.rows import Row
from clsweep.cli.status import MOST_OF_ERROR
from clsweep.display.cells import records_of
from clsweep.display.numbers import is_number, setting_column, texts_of
from clsweep.errors import RequestError, first_line, nearest
from clsweep.opened_results import Results
from clsweep.results.schemas import TRIAL_STATUSES, test_fields
from clsweep.statistics.recommend import fewer_fresh
from clsweep.statistics.statistic import level_cell
from clsweep.study.factors import factors_of
from clsweep.study.space import declared_axes
from clsweep.sweeps.fresh_seeds import ranking as ranking_of
from clsweep.sweeps.fresh_seeds import unconfirmed
from clsweep.sweeps.notes import CONFIRMED_ON_TEST

# Columns of trials that a screen without room does without.
MOST_NAMED = 30  # columns that an error lists
TRIALS_SPARE = ("train_loss", "images_per_s", "wall_time_s")
# What is shown of trials that ended so.
_OF_STATUS = {"stopped": "epochs_trained", "skipped": "skipped_because", "failed": "error_message"}
EXAMPLE = "\"tau < 0.1 and status == 'finished'\""
_NONE = re.compile(r"(?:[=!]=|\bis(?: not)?)\s*None\b")
_UNKNOWN = re.compile(r"name '(.*)' is not defined")
_QUOTED = re.compile(r"`([^`]*)`")
_QUOTATION = r"'[^']*'|\"[^\"]*\""
_COMPARED = re.compile(
    rf"(?<![\w.])(?P<name>\w+)\s*(?P<sign>[=!]=)\s*(?P<text>{_QUOTATION})|{_QUOTATION}"
)
_MEMBER = re.compile(
    r"(?<![\w.])(?P<name>\w+)\s+(?P<not>not\s+)?in\s*"
    rf"(?P<values>\[(?:{_QUOTATION}|[^]'\"])*\]|\((?:{_QUOTATION}|[^)'\"])*\))|{_QUOTATION}"
)
_TEXTS = re.compile(rf"{_QUOTATION}|`[^`]*`")


def table_status(results: Results) -> list[Row]:
    """Of a table of trials per objective how many ended how, and the best configuration."""
    trials, data = results.trials, results.data
    best = {
        row["objective"]: row for row in records_of(results.recommend().query("kind == 'best'"))
    }
    rows: list[Row] = []
    for name, mine in trials.groupby("objective", sort=False):
        counts = {status: int((mine["status"] == status).sum()) for status in TRIAL_STATUSES}
        picked = best.get(name, {})
        best_columns = {f"best {data.metric}": picked.get("score"), "at": picked.get("at")}
        shown = {n: num for n, num in counts.items() if num or n in ("finished", "failed")}
        rows.append({"objective": name, **shown, **best_columns})
    return rows


def trial_rows(
    results: Results,
    where: str | None,
    sort: str | None,
    top: int | None,
    *,
    columns: Sequence[str] | None = None,
    every_column: bool,
) -> tuple[list[Row], list[str]]:
    """Trial rows, selected and sorted, and their columns: those asked for, or for eyes those that
    tell trials apart.
    """
    frame = results.trials
    if where:
        frame = frame[selected(frame, where)]
    score, mode = results.data.metric, results.data.mode
    if top and not sort and score in frame:  # the best ones
        sort = score if mode == "min" else f"-{score}"
    if sort:
        column = _known(sort.removeprefix("-"), f"--sort {sort}", frame)
        frame = frame.sort_values(column, ascending=not sort.startswith("-"), kind="stable")
    if top:
        frame = frame.head(top)
    if columns:
        frame = frame[list(dict.fromkeys(_known(name, "--columns", frame) for name in columns))]
    if not every_column:
        tree, params = results.study if results.studies else {}, results.data.params
        axes = declared_axes(tree, frame.columns).values() if results.studies else [params]
        swept = [name for name in frame.columns if any(name in each for each in axes)]
        if not columns:
            names = ["trial_id", *factors_of(tree), "objective", *swept, "seed", "status"]
            statuses = set(frame["status"])
            of_status = [name for status, name in _OF_STATUS.items() if status in statuses]
            names = [*names, *_measured(frame), score, *TRIALS_SPARE, *of_status]
            frame = frame[[name for name in dict.fromkeys(names) if name in frame]]
        texts = {name: setting_column(frame[name].tolist()) for name in swept if name in frame}
        texts |= {name: _scores(frame[name].tolist()) for name in _measured(frame)}
        if "error_message" in frame:
            texts["error_message"] = frame["error_message"].str.slice(0, MOST_OF_ERROR).tolist()
        frame = frame.assign(**texts)
    return records_of(frame.astype(object).where(frame.notna(), None)), list(frame.columns)


def selected(frame: pd.DataFrame, where: str) -> pd.Series[bool]:
    """Which rows a condition selects; a row without a value that it asks for is not selected.

    It is what pandas' `query` takes: names with other signs stand in backticks. The user types it;
    the names of the columns come from a results folder, and pandas looks them up alone.

    Raises:
        RequestError: it is no condition, or names a column that there is not.
    """
    typed, plain = frame.apply(_typed), where
    for number, name in enumerate(sorted(map(str, frame), key=len, reverse=True)):
        if f"`{name}`" in plain:  # whatever signs it has
            plain = plain.replace(f"`{name}`", f"column_{number}_")
            typed = typed.assign(**{f"column_{number}_": typed[name]})
    try:
        _require_columns(plain, frame)
        plain, typed = _texts_as_columns(_members_as_equal(plain, typed), typed)
        # Nothing of this program is in reach of the condition.
        mask = typed.eval(plain, engine="python", local_dict={}, global_dict={})
    except Exception as error:  # whatever the user's expression raises
        reason, bare = first_line(error), _TEXTS.sub("", plain)
        if meant := [name for name in map(str, frame) if name in bare and _quoted(name) != name]:
            reason = f"expected backticks, as in {_quoted(max(meant, key=len))}"
        elif unknown := _UNKNOWN.search(reason):
            reason = _no_column(unknown[1], frame)
        raise RequestError(f"--where {_shown(where)}: {reason:.2000}") from None
    if not isinstance(mask, pd.Series) or not pd.api.types.is_bool_dtype(mask):
        raise RequestError(f"--where {_shown(where)}: expected a condition, as in {EXAMPLE}")
    return mask.fillna(False).astype(bool)


def _typed(column: pd.Series[Any]) -> pd.Series[Any]:
    """A column with a type that knows missing values, of which none compares as true."""
    if isinstance(column.dtype, pd.CategoricalDtype):
        column = column.astype(object)
    known = column.dropna()
    if column.dtype == object and len(known) and all(isinstance(v, Decimal) for v in known):
        column = column.astype(float)
    column = column.convert_dtypes()
    is_text = isinstance(column.dtype, pd.StringDtype)  # in Python, to stand beside numbers
    return column.astype(pd.StringDtype("python")) if is_text else column


def _members_as_equal(where: str, typed: pd.DataFrame) -> str:
    """`tau not in [1, 2]` as `not (tau == 1 or tau == 2)`: to be in a list is known of every value
    to pandas, of a missing one too.
    """

    def replaced(match: re.Match[str]) -> str:
        if match["name"] not in typed:
            return match[0]
        with suppress(ValueError, SyntaxError):  # no list of plain values
            values = list(ast.literal_eval(match["values"]))
            equal = " or ".join(f"{match['name']} == {value!r}" for value in values)
            return f"({'not ' * bool(match['not'])}({equal}))" if values else match[0]
        return match[0]

    return _MEMBER.sub(replaced, where)


def _texts_as_columns(where: str, typed: pd.DataFrame) -> tuple[str, pd.DataFrame]:
    """Each text that a column is compared with, as a column of its own and of that type: pandas
    would look for it in a list, where a date is no text, and a missing value is another.
    """
    texts: dict[str, pd.Series[Any]] = {}

    def replaced(match: re.Match[str]) -> str:
        if (name := match["name"]) is None or name not in typed:
            return match[0]
        text = pd.Series(ast.literal_eval(match["text"]), typed.index)
        texts[new := f"text_{len(texts)}_"] = text.astype(typed[name].dtype)
        return f"{name} {match['sign']} {new}"

    return _COMPARED.sub(replaced, where), typed.assign(**texts)


def _require_columns(where: str, frame: pd.DataFrame) -> None:
    """Raises ValueError for what pandas would say in words of its own, or not at all."""
    for name in _QUOTED.findall(where):
        if name not in frame:
            raise ValueError(_no_column(name, frame))
    if "@" in _TEXTS.sub("", where):
        raise ValueError(f"expected columns and values, as in {EXAMPLE}, given '@'")
    if compared := _NONE.search(where):  # no comparison with a missing value holds
        raise ValueError(
            "expected .isna() or .notna() of a column, as in 'tau.isna()', given "
            f"{compared[0]!r:.80}"
        )


def _no_column(name: str, frame: pd.DataFrame) -> str:
    if frame.isin([name]).to_numpy().any():
        return f'no column {name!r:.80}. A text stands in quotes: "{name:.80}"'
    columns = [str(column) for column in frame.columns]
    quoted = [*map(_quoted, columns)]
    more = f" and {len(quoted) - MOST_NAMED} more" if len(quoted) > MOST_NAMED else ""
    shown = ", ".join(quoted[:MOST_NAMED])
    return f"no column {name!r:.80}.{nearest(name, quoted)} Columns: {shown}{more}"


def _quoted(name: str) -> str:
    is_plain = name.isidentifier() and not keyword.iskeyword(name)
    return name if is_plain else f"`{name}`"


def _shown(where: str) -> str:
    return repr(where) if len(where) <= 80 else f"{where[:80]!r}..."


def _known(name: str, option: str, frame: pd.DataFrame) -> str:
    if name not in frame:
        raise RequestError(f"{option}: no column {name!r}.{nearest(name, frame.columns)}")
    return name


def trials_spare(results: Results) -> list[str]:
    """Columns that a narrow `clsweep trials` leaves out; the study's own metric stays."""
    metric = results.tables.metric if results.studies else results.data.metric
    others = [name for name in _measured(results.trials) if name != metric]
    statuses = results.trials["status"]
    same_status = [] if (statuses != statuses.iloc[:1].squeeze()).any() else ["status"]
    return [*TRIALS_SPARE, *reversed(others), *same_status, "objective"]


def _scores(values: Sequence[Any]) -> list[str]:
    """A column of scores: as fine as they are spread."""
    known = [value for value in values if is_number(value) and math.isfinite(value)]
    spread = statistics.pstdev(known) if known else math.nan
    is_fine = max(map(abs, known), default=2) <= 1  # a share, not percent
    shown = level_cell("score", lambda _: spread)
    each = list(dict.fromkeys(values))  # a share of some images has few values
    texts = texts_of([shown({"score": value}) for value in each], is_fine=is_fine)
    return list(map(dict(zip(each, texts, strict=True)).__getitem__, values))


def _measured(frame: pd.DataFrame) -> list[str]:
    """The metrics that any trial has, on the test split too."""
    names = [metric.name for metric in METRICS] + [field.name for field in test_fields()]
    return [name for name in names if name in frame and frame[name].notna().any()]


def confirm_notes(results: Results, *, top: int | None) -> list[str]:
    """Notes on rows that the table lacks, and on scores that do not compare."""
    frame = results.confirm(top=top)
    notes = [CONFIRMED_ON_TEST] if results.tables.score_on == "test" else []
    fewer = fewer_fresh(frame)
    for at in frame.index[fewer.notna()]:
        which = " ".join(filter(None, frame.loc[at, ["objective", "at"]]))
        notes.append(f"{which}: on {fewer[at]}, so its mean does not compare with the others'")
    if (frame["fresh_seeds"] == 1).any():
        notes.append("one fresh seed has no interval; give further ones with --seeds")
    notes += [
        f"{ranking.objective}: {left_out} of {left_out + len(ranking.configs)} configurations left "
        "out, not finished on all seeds of the study"
        for ranking in ranking_of(results.tables, results.data.metric, results.data.mode)
        if (left_out := ranking.num_left_out)
    ]
    if missing := unconfirmed(results.tables, top):
        notes.append(f"not confirmed yet: {missing} of the configurations that are the best now")
    return notes

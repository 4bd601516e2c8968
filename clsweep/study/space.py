"""One objective's hyperparameters: what is fixed, what is swept over which dimension, and what it
does not own.

A swept one may hang on others: it has no effect at another's value, as the catalog knows, or is
swept at some values of another alone, as a space's `when` says.
"""

from __future__ import annotations

import itertools
import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import yaml

from clsweep.catalog import PARAM, Param, Value
from clsweep.catalog.other_names import OTHER_NAMES
from clsweep.catalog.ownership import small_view_size, switched_off_by
from clsweep.catalog.rows import Row
from clsweep.display.numbers import setting
from clsweep.errors import did_you_mean, nearest
from clsweep.study.document import Document
from clsweep.study.factors import cell_document, factor_cells

if TYPE_CHECKING:
    import pandas as pd

_Values = Mapping[str, Sequence[Value]]  # those that each swept hyperparameter may take
DIMENSION_KEYS = ("low", "high", "log", "grid", "choices", "when")


@dataclass(frozen=True, kw_only=True)
class Dimension:
    """The values that a hyperparameter may take: a range, a grid of points, or ordered choices."""

    param: Param
    low: float | None = None
    high: float | None = None
    log: bool = False
    grid: tuple[Value, ...] = ()
    choices: tuple[Value, ...] = ()
    when: tuple[tuple[str, tuple[Value, ...]], ...] = ()  # swept at these values of others alone
    otherwise: Value | None = None  # its value elsewhere; None: it has no effect there

    @property
    def points(self) -> tuple[Value, ...]:
        """The values of a grid search; empty if only a range was given."""
        return self.choices or self.grid

    @property
    def values(self) -> Sequence[Value] | None:
        """Every possible value outside of a grid search; None for a range of real numbers."""
        if self.choices:
            return self.choices
        if self.param.kind == "int" and self.low is not None and self.high is not None:
            return range(int(self.low), int(self.high) + 1)
        return None

    @property
    def is_range(self) -> bool:
        return self.low is not None

    def holds(self, value: Any, *, is_gridded: bool) -> bool:
        """True if a search may try this value: of a grid one of its points."""
        if is_gridded or self.choices:
            return value in self.points
        return self.low is not None and self.high is not None and self.low <= value <= self.high

    @property
    def extremes(self) -> tuple[Value, Value]:
        """Smallest and largest possible value of a numeric dimension."""
        ends = (self.low, self.high, self.otherwise)
        values: list[Any] = [*self.points, *(v for v in ends if v is not None)]
        return min(values), max(values)

    def describe(self) -> str:
        """`0.05..1 log`, `{32, 64}`: for the plan."""
        beside = "".join(
            f" when {other} is {' or '.join(map(setting, values))}" for other, values in self.when
        )
        if self.choices:
            return f"{{{', '.join(map(setting, self.choices))}}}{beside}"
        ends = f"{setting(self.low)}..{setting(self.high)}"
        span = f"{ends}{' log' if self.log else ''}" if self.is_range else ""
        points = f"{len(self.grid)} points" if self.grid else ""
        return ", ".join(part for part in (span, points) if part) + beside


@dataclass(frozen=True)
class Condition:
    """A hyperparameter takes part at these values of another, or not at them (not `needed`)."""

    other: str
    values: tuple[Value, ...]
    needed: bool


class Conditions:
    """Those of one objective's space; `order` has every hyperparameter after those it hangs on."""

    def __init__(
        self,
        parts: Mapping[str, str],
        fixed: Mapping[str, Value],
        space: Mapping[str, Dimension],
        values: Mapping[str, Sequence[Value] | None],
    ):
        self._space = space
        self.of = {
            name: (
                *(Condition(other, values, True) for other, values in d.when if other in space),
                *(
                    Condition(other, (value,), False)
                    for other, value in switched_off_by(name, parts, fixed)
                    # which a real number all but never is
                    if other in space
                    and (value in (values[other] or ()) or value == space[other].otherwise)
                ),
            )
            for name, d in space.items()
        }
        self.order: list[str] = []
        for name in space:
            self._visit(name, ())

    def _visit(self, name: str, path: tuple[str, ...]) -> None:
        if name not in self.order and name not in path:
            for condition in self.of[name]:
                self._visit(condition.other, (*path, name))
            self.order.append(name)

    @property
    def names(self) -> frozenset[str]:
        """The hyperparameters that some configurations lack."""
        return frozenset(name for name, conditions in self.of.items() if conditions)

    def hangs_on(self, name: str, other: str) -> bool:
        """True if it does, directly or by those in between."""
        seen, left = set[str](), [name]
        while left:
            others = {condition.other for condition in self.of[left.pop()]} - seen
            seen |= others
            left += others
        return other in seen

    def takes_part(self, name: str, values: Mapping[str, Value | None]) -> bool:
        """True if it does beside these values, of which None takes no part itself."""
        return name in self.taken({**values, name: ""})

    def taken(self, values: Mapping[str, Value | None]) -> dict[str, Value]:
        """The values of those that take part, of a configuration of the whole space."""
        settled, swept = self._resolved(values)
        return {n: v for n, v in settled.items() if n in swept and v is not None}

    def settled(self, values: Mapping[str, Value | None]) -> dict[str, Value | None]:
        """The configuration as it is trained and recorded: None for what has no effect, and what is
        given beside `when` for what is not swept.
        """
        return self._resolved(values)[0]

    def _resolved(
        self, values: Mapping[str, Value | None]
    ) -> tuple[dict[str, Value | None], set[str]]:
        """The configuration as it is recorded, and what is swept in it.

        What hangs on one without effect has none either. Of two that hang on each other the first
        looks at what is given for the second, and the second at what the first has become.
        """
        settled, swept = dict[str, Value | None](), set[str]()

        def given(name: str) -> tuple[Value | None, bool]:
            for c in self.of[name]:
                if c.needed and (c.other not in swept or settled[c.other] not in c.values):
                    return self._space[name].otherwise, False
            return values.get(name), True

        def is_off(name: str, c: Condition) -> bool:
            beside = settled[c.other] if c.other in settled else given(c.other)[0]
            if beside is None and c.other in settled:
                return all(back.other != name for back in self.of[c.other])
            return beside in c.values

        for name in self.order:
            value, is_swept = given(name)
            for condition in self.of[name]:
                if not condition.needed and is_off(name, condition):
                    value = None
            settled[name] = value
            if is_swept and value is not None:
                swept.add(name)
        return {name: settled[name] for name in self._space}, swept

    def count(self, values: _Values) -> int:
        """Number of different configurations, none of which is made."""
        sizes_of = {}
        for taken, sizes in self.classes(values):
            key = tuple((name, taken[name] if name in sizes else "") for name in taken)
            sizes_of[key] = math.prod(sizes.get(name) or num_values(values[name]) for name in taken)
        return sum(sizes_of.values())

    def classes(self, values: _Values) -> Iterator[tuple[dict[str, Value], dict[str, int]]]:
        """A configuration of each class of them, as `taken`, and how many values of those that
        others hang on it stands for: all that no condition names are one class.
        """
        if not all(values.values()):
            return
        named: dict[str, list[Value]] = {}
        for condition in itertools.chain.from_iterable(self.of.values()):
            named.setdefault(condition.other, []).extend(condition.values)
        classes = []
        for name, special in named.items():
            known = [value for value in dict.fromkeys(special) if value in values[name]]
            others = num_values(values[name]) - len(known)
            rest = itertools.islice((v for v in values[name] if v not in known), 1)
            sizes = [*((v, 1) for v in known), *((v, others) for v in rest)]
            classes.append([(name, value, size) for value, size in sizes])
        first = {name: each[0] for name, each in values.items()}
        for chosen in itertools.product(*classes):
            taken = self.taken({**first, **{name: value for name, value, _ in chosen}})
            yield taken, {name: size for name, _, size in chosen}


def num_values(values: Sequence[Value]) -> int:
    """Number of values, which may be more than `len` can say."""
    return values.stop - values.start if isinstance(values, range) else len(values)


@dataclass(frozen=True, kw_only=True)
class Objective:
    """One objective of a study: its four parts, its fixed hyperparameters, its own flat space."""

    name: str  # with the cell in front where the study has factors
    parts: Mapping[str, str]
    fixed: Mapping[str, Value]
    space: Mapping[str, Dimension]
    skips: Mapping[str, tuple[str, ...]]  # reason -> shared parameters that are skipped for it
    cell: str = ""
    is_gridded: bool = True  # whether of a dimension its points are tried, not its range
    first: tuple[Mapping[str, Value | None], ...] = ()  # configurations that are tried first

    @property
    def label(self) -> str:
        """The name in the study file, which all cells share."""
        return self.name.removeprefix(f"{self.cell}/") if self.cell else self.name

    @property
    def owned(self) -> tuple[str, ...]:
        """Every hyperparameter that the objective owns, in catalog order."""
        return tuple(name for name in PARAM if name in self.fixed or name in self.space)

    @property
    def encoders(self) -> tuple[str, ...]:
        """The one that is fixed, or those that are swept."""
        dimension = self.space.get("encoder")
        values = dimension.choices if dimension else (self.fixed["encoder"],)
        return tuple(map(str, values))

    @property
    def values(self) -> dict[str, Sequence[Value] | None]:
        """Those that each swept hyperparameter may take here; None for a range of real numbers."""
        return {n: d.points if self.is_gridded else d.values for n, d in self.space.items()}

    @cached_property
    def conditions(self) -> Conditions:
        """Hyperparameters that some configurations of its space lack, and when."""
        return Conditions(self.parts, self.fixed, self.space, self.values)

    @property
    def num_configs(self) -> int | None:
        """Number of different ones; None if any dimension is a range of real numbers."""
        known = {name: values for name, values in self.values.items() if values is not None}
        return self.conditions.count(known) if len(known) == len(self.space) else None

    def extremes(self, name: str) -> tuple[Any, Any]:
        """Smallest and largest value that `name` takes in this objective, fixed or swept."""
        if name in self.space:
            return self.space[name].extremes
        return self.fixed[name], self.fixed[name]


def store_size_of(objective: Objective, image_size: int, form: str) -> int:
    """Shorter side of pictures, pixels, at which no crop of a view is blown up. Of JPEGs the
    largest crop is not, nor the scored middle: all pixels are decoded, whatever the crop needs.
    """
    from clsweep.data.image_files import needed_size

    size = objective.extremes("view_size")[1] or image_size
    if "crop_scale" not in objective.owned:
        return needed_size(size, 1.0)

    def needed(side: int, smallest: float, largest: str) -> int:
        share = objective.extremes(largest)[0] if form == "jpeg" else smallest
        return needed_size(side, share)

    smallest, _ = objective.extremes("crop_scale")
    size_of_all = needed(size, smallest, "crop_max")
    if "small_view_size" in objective.owned:
        small = objective.extremes("small_view_size")[1] or small_view_size(size)
        scale = objective.extremes("small_crop_scale")[0] or smallest
        size_of_all = max(size_of_all, needed(small, scale, "small_crop_max"))
    return size_of_all


def declared_spaces(tree: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Dimensions of each objective of a recorded study: objective -> parameter -> its dimension.

    Read off the plain tree of `study.yaml`, so that a folder opens where its data set or its
    catalog is not at hand. What an objective does not own is not left out: it has no values there.
    """
    if cells := factor_cells(tree):
        whole = Document("", dict(tree))
        return {
            cell.qualified(name): space
            for cell in cells
            for name, space in declared_spaces(cell_document(whole, cell).tree).items()
        }
    shared, spaces = tree.get("space") or {}, {}
    for name, section in tree["objectives"].items():
        fixed, own = ((section or {}).get(key) or {} for key in ("base", "space"))
        joined = {param: shared[param] for param in shared if param not in fixed}
        spaces[str(name)] = {**joined, **own}
    return spaces


def declared_axes(tree: Mapping[str, Any], columns: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """Those of the columns that each objective of a recorded study sweeps, in their order."""
    known = list(columns)
    return {
        objective: tuple(name for name in known if name in space)
        for objective, space in declared_spaces(tree).items()
    }


def only_swept(tree: Mapping[str, Any], trials: pd.DataFrame) -> pd.DataFrame:
    """The trials of a recorded study without values where a space's `when` does not sweep them: to
    an analysis what is fixed there is none of its settings.
    """
    for objective, name, other, listed in _conditions(tree):
        gone = (trials["objective"] == objective) & ~trials[other].isin(listed)
        trials = trials.assign(**{name: trials[name].mask(gone)})
    return trials


def only_swept_rows(tree: Mapping[str, Any], rows: Iterable[Row]) -> list[Row]:
    """The same of rows, without pandas."""
    swept = list(rows)
    for objective, name, other, listed in _conditions(tree):
        swept = [
            row | {name: None}
            if row["objective"] == objective and row.get(other) not in listed
            else row
            for row in swept
        ]
    return swept


def _conditions(tree: Mapping[str, Any]) -> list[tuple[str, str, str, list[Any]]]:
    """Each `when` of a recorded study: objective, hyperparameter, another one and its values there.
    They come so often that parents may come after what hangs on them.
    """
    conditions = []
    for objective, space in declared_spaces(tree).items():
        whens = {name: each["when"] for name, each in space.items() if "when" in (each or {})}
        for name in [*whens] * len(whens):
            for other, given in whens[name].items():
                listed = given if isinstance(given, list) else [given]
                if other in PARAM:
                    listed = [PARAM[other].coerce(each) for each in listed]
                conditions.append((objective, name, other, listed))
    return conditions


def file_slug(name: str) -> str:
    """An objective's name as a part of a file name."""
    return re.sub(r"[^A-Za-z0-9]+", "_", name).strip("_") or "objective"


def _one_objective_each(param: Param, raw: object) -> str:
    """The lines of objectives that differ in what was to be swept, `...` for their other keys."""
    values = raw.get("choices", raw.get("grid")) if isinstance(raw, dict) else raw
    given = values[:3] if isinstance(values, list) and values else ["VALUE"]
    bases = [{"base": {param.name: value}} for value in given]
    texts = [yaml.safe_dump(each, default_flow_style=True, width=math.inf) for each in bases]
    return ", ".join(f"NAME_{n}: {{..., {text.strip()[1:]}" for n, text in enumerate(texts, 1))


def parse_dimension(param: Param, raw: object) -> Dimension:
    """A dimension from its YAML mapping.

    Raises:
        ValueError: "expected ..., given ..." (unknown key, empty grid, bounds out of order or of
            the parameter's own).
    """
    if not param.sweepable:
        raise ValueError(
            f"'{param.name}' cannot be swept; fix it in base, or have an objective for each value "
            f"of it: {_one_objective_each(param, raw)}"
        )
    if not isinstance(raw, dict):
        hint = f".{did_you_mean([f'{{grid: {raw}}}'])}" if isinstance(raw, list) else ""
        raise ValueError(
            "expected {low, high} with an optional log and grid, {grid} or {choices}, given "
            f"{raw!r:.80}{hint}"
        )
    for key in raw:
        if key not in DIMENSION_KEYS:
            raise ValueError(
                f"unknown key '{key:.80}'.{nearest(key, DIMENSION_KEYS, OTHER_NAMES)} Expected: "
                f"{', '.join(DIMENSION_KEYS)}"
            )
    if "when" in raw:
        values = {key: value for key, value in raw.items() if key != "when"}
        return replace(parse_dimension(param, values), when=_parse_when(param, raw["when"]))
    if "choices" in raw:
        if len(raw) > 1:
            others = ", ".join(key for key in raw if key != "choices")
            raise ValueError(
                f"expected either choices or low, high, log and grid, given choices and {others}; "
                "null removes a key"
            )
        return Dimension(param=param, choices=_points(param, "choices", raw["choices"]))
    if param.kind in ("choice", "bool"):
        raise ValueError(f"expected choices out of {param.bounds}, given {raw!r:.80}")
    return _numeric_dimension(param, raw)


def _parse_when(param: Param, raw: object) -> tuple[tuple[str, tuple[Value, ...]], ...]:
    if not isinstance(raw, dict) or not raw:
        expected = "expected {hyperparameter: value or list of values}"
        raise ValueError(f"when: {expected}, given {raw!r:.80}")
    conditions = []
    for name, given in raw.items():
        if name not in PARAM or name == param.name:
            what = "itself" if name == param.name else f"unknown parameter '{name:.80}'"
            raise ValueError(f"when: {what}.{nearest(str(name), PARAM)} Expected another one")
        listed = given if isinstance(given, list) else [given]
        try:
            conditions.append((name, _points(PARAM[name], "when", listed)))
        except ValueError as error:
            raise ValueError(f"when: {name}: {str(error).removeprefix('when: ')}") from None
    return tuple(conditions)


def _numeric_dimension(param: Param, raw: dict[str, Any]) -> Dimension:
    log = raw.get("log", False)
    if not isinstance(log, bool):
        raise ValueError(f"log: expected true or false, given {log!r:.80}")
    grid = _points(param, "grid", raw["grid"]) if "grid" in raw else ()
    if ("low" in raw) != ("high" in raw):
        raise ValueError(
            f"expected both low and high, given only {'low' if 'low' in raw else 'high'}"
        )
    if "low" not in raw:
        if "log" in raw:
            raise ValueError("log: expected low and high beside it; a grid alone has no scale")
        if not grid:
            raise ValueError("expected low and high, grid or choices, given none of them")
        return Dimension(param=param, grid=grid)
    low: Any
    high: Any
    (low,), (high,) = (_points(param, key, [raw[key]]) for key in ("low", "high"))
    if low >= high:
        raise ValueError(f"expected low < high, given low {setting(low)} and high {setting(high)}")
    if log and low <= 0:
        raise ValueError(f"low: a log scale needs low > 0, given {setting(low)}")
    outside = [v for v in grid if not isinstance(v, str) and not low <= v <= high]
    if outside:
        ends = f"low {setting(low)} .. high {setting(high)}"
        raise ValueError(f"grid: {setting(outside[0])} lies outside of {ends}")
    return Dimension(param=param, low=low, high=high, log=log, grid=grid)


def _points(param: Param, key: str, raw: object) -> tuple[Value, ...]:
    if not isinstance(raw, list) or not raw:
        raise ValueError(f"{key}: expected a list of at least one value, given {raw!r:.80}")
    try:
        points = tuple(param.coerce(value) for value in raw)
    except ValueError as error:
        raise ValueError(f"{key}: {error}") from None
    if len(set(points)) < len(points):
        raise ValueError(f"{key}: {Counter(points).most_common(1)[0][0]} stands twice")
    return points

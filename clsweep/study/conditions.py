"""Swept hyperparameters that hang on others: one has no effect at another's value, as the catalog
knows, or is swept at some values of another alone, as a space's `when` says.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from clsweep.catalog import Value
from clsweep.catalog.ownership import switched_off_by

Values = Mapping[str, Sequence[Value]]  # those that each swept hyperparameter may take


class Swept(Protocol):
    """What is asked of a dimension of a space."""

    @property
    def when(self) -> tuple[tuple[str, tuple[Value, ...]], ...]: ...

    @property
    def otherwise(self) -> Value | None: ...


@dataclass(frozen=True)
class Condition:
    """A hyperparameter takes part at these values of another, or (not `needed`) has no effect at
    them.
    """

    other: str
    values: tuple[Value, ...]
    needed: bool


class Conditions:
    """Those of one objective's space; `order` has every hyperparameter after those it hangs on."""

    def __init__(
        self,
        parts: Mapping[str, str],
        fixed: Mapping[str, Value],
        space: Mapping[str, Swept],
        values: Mapping[str, Sequence[Value] | None],
    ):
        self._space = space
        self.of = {
            name: (
                *(Condition(other, values, True) for other, values in d.when if other in space),
                *(
                    Condition(other, (value,), False)
                    for other, value in switched_off_by(name, parts, fixed)
                    if value in (values.get(other) or ())  # which a real number all but never is
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
        """Whether it does, directly or by those in between."""
        seen, left = set[str](), [name]
        while left:
            found = {condition.other for condition in self.of[left.pop()]} - seen
            seen |= found
            left += found
        return other in seen

    def takes_part(self, name: str, values: Mapping[str, Value | None]) -> bool:
        """Whether it does beside these values, of which None takes no part itself. What hangs on
        that takes none either, unless the two hang on each other.
        """
        for condition in self.of[name]:
            value = values.get(condition.other)
            if value is None:
                if all(back.other != name for back in self.of[condition.other]):
                    return False
            elif (value in condition.values) != condition.needed:
                return False
        return True

    def taken(self, values: Mapping[str, Value | None]) -> dict[str, Value]:
        """The values of those that take part, of a configuration of the whole space."""
        found = {name: values.get(name) for name in self._space}
        for name in self.order:
            if not self.takes_part(name, found):
                found[name] = None
        return {name: value for name, value in found.items() if value is not None}

    def settled(self, values: Mapping[str, Value | None]) -> dict[str, Value | None]:
        """The configuration as it is trained and recorded: None for what has no effect, and what is
        given beside `when` for what is not swept.
        """
        found: dict[str, Value | None] = {**dict.fromkeys(self._space), **self.taken(values)}
        for name in self.order:
            inert = (c for c in self.of[name] if not c.needed)
            if found[name] is None and not any(
                found[c.other] is None or found[c.other] in c.values for c in inert
            ):
                found[name] = self._space[name].otherwise
        return found

    def count(self, values: Values) -> int:
        """Number of different configurations, none of which is made."""
        found = {}
        for taken, sizes in self._classes(values):
            key = tuple((name, taken[name] if name in sizes else "") for name in taken)
            found[key] = math.prod(sizes.get(name) or size_of(values[name]) for name in taken)
        return sum(found.values())

    def ever_taken(self, values: Values) -> set[str]:
        """The hyperparameters that take part in some configuration."""
        return {name for taken, _ in self._classes(values) for name in taken}

    def _classes(self, values: Values) -> Iterator[tuple[dict[str, Value], dict[str, int]]]:
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
            others = size_of(values[name]) - len(known)
            rest = [(v, others) for v in values[name] if v not in known][:1] if others else []
            classes.append(
                [(name, value, size) for value, size in (*((v, 1) for v in known), *rest)]
            )
        first = {name: each[0] for name, each in values.items()}
        for chosen in itertools.product(*classes):
            taken = self.taken({**first, **{name: value for name, value, _ in chosen}})
            yield taken, {name: size for name, _, size in chosen}


def size_of(values: Sequence[Value]) -> int:
    """How many there are, which may be more than `len` can say."""
    return values.stop - values.start if isinstance(values, range) else len(values)

"""Where a step's gradient ends: in parameters that the optimizer steps, or it would be lost."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor

from clsweep.catalog import COMPONENT, Part
from clsweep.catalog.plugin_guard import PartError, value_text
from clsweep.train.state import TrialState


def require_trained(
    state: TrialState, roots: Sequence[Tensor], parts: Sequence[Part], given: Sequence[Tensor] = ()
) -> None:
    """Refuse a leaf with a gradient that the optimizer does not have: it would stay as it begins,
    and no checkpoint would hold it. Looks at the first step of an epoch alone.

    Args:
        roots: where the gradient begins. given: where the search ends.
        parts: of the trial, which the leaf may be of; the first of the user's own is to blame.

    Raises:
        PartError: there is one.
    """
    if state.under_way is None or state.under_way.step:
        return
    groups = state.optimizer.param_groups
    known = {id(x) for x in (*given, *(p for group in groups for p in group["params"]))}
    seen: set[Any] = {None, *(x.grad_fn for x in given)}
    waiting: list[Any] = [x.grad_fn for x in roots]
    while waiting:
        if (node := waiting.pop()) in seen:
            continue
        seen.add(node)
        if node.name().endswith("AccumulateGrad") and id(node.variable) not in known:
            rows = [COMPONENT[part][state.config[part]] for part in parts]
            own = [row for row in rows if row.impl and not row.impl.startswith("clsweep.")]
            row, leaf = (own or rows)[0], value_text(node.variable)
            expected = "expected the optimizer to have every leaf with a gradient, given another"
            remedy = f"make the {row.part} an nn.Module with this parameter, or detach it"
            raise PartError(f"{row.name}: {expected}, {leaf}: {remedy}", row)
        waiting += [after for after, _ in node.next_functions]

"""`clsweep try`: one planned trial in this process, a row per epoch."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import accumulate
from typing import TYPE_CHECKING, Any

from clsweep.catalog import DIAGNOSTICS, METRICS, Diagnostic, Metric
from clsweep.catalog.ownership import is_taken
from clsweep.catalog.plugins import error_line
from clsweep.catalog.rows import Row
from clsweep.display.numbers import byte_size, count, fixed, mentioned, setting
from clsweep.display.printing import print_note, say, screen_width
from clsweep.errors import RequestError, first_line, nearest
from clsweep.machine import stand_back
from clsweep.study.design import PlannedTrial, Study, plan_row, plan_trials

if TYPE_CHECKING:
    import torch

_COLUMNS: dict[str, Callable[[Any], str]] = {
    "epoch": str,
    "train_loss": partial(fixed, digits=4),
    "lr": mentioned,
    "images_per_s": count,
    "time_s": fixed,
}
_LEAST = 9  # characters of a column


def try_trial(
    study: Study, objective: str, *, config: int, seed: int | None, device: str | None
) -> Row:
    """Run one trial of the plan here and print it; returns its results.

    Raises:
        RequestError: unknown objective, configuration or device.
    """
    if (drawn := study.drawn()) is not study:
        method, study = study.sections.search.method, drawn
        print_note(f"{method} chooses its settings as it runs. This one is drawn at random.")
    trial = planned_trial(study, objective, config)
    row = plan_row(study, trial) | {"seed": trial.seed if seed is None else seed}
    owned = [f"{name}={setting(row[name])}" for name in trial.params if name in row]
    print_note(f"{objective}, configuration {config}, seed {row['seed']}: {', '.join(owned)}")
    import torch

    from clsweep.train.loop import train_trial
    from clsweep.train.memory import keep_freed_memory, limited_memory

    resources = study.sections.resources
    on = _device(device or ("cuda" if resources.gpus_per_worker else "cpu"))
    keep_freed_memory()
    stand_back()
    torch.set_num_threads(resources.cpus_per_worker)
    metrics = [m for m in METRICS if is_taken(m, row)]
    first = study.sections.metric.name
    own = [d for d in DIAGNOSTICS if not d.impl.startswith("clsweep.")]
    scored: list[Metric | Diagnostic] = [*metrics, *own]
    names = sorted((metric.name for metric in metrics), key=lambda name: name != first)
    # not all fit a narrow screen
    ahead = ["epoch", "train_loss", *names[:1], *(row.name for row in own)] if own else []
    widths = {name: max(len(name), _LEAST) + 2 for name in (*ahead, *_COLUMNS, *names)}
    ends = dict(zip(widths, accumulate(widths.values()), strict=True))
    forms = {n: _COLUMNS.get(n, fixed) for n in widths if ends[n] <= screen_width()}
    say("".join(f"{name:>{widths[name]}}" for name in forms))

    def print_epoch(epoch: Row) -> None:
        cells = {n: form(epoch[n]) if epoch.get(n) is not None else "" for n, form in forms.items()}
        say("".join(f"{cell:>{widths[name]}}" for name, cell in cells.items()))

    place = study.of(objective).sections.dataset.place
    try:
        with limited_memory(on, resources.gpus_per_worker or 1.0, resources.images_on):
            result = train_trial(row, print_epoch, place=place, device=on)
    except RequestError:
        raise
    except Exception as error:  # `clsweep run` makes a failed row of it
        raise RequestError(f"{objective} failed: {error_line(error, row['loss'])}") from error
    peak = result["peak_memory_gib"] or 0
    memory = f", peak memory {byte_size(peak * 2**30, 3)}" if peak else ""
    precision = f", trained in {result['precision']}" if "precision" in result else ""
    scores = ", ".join(
        f"{m.name} {fixed(result[m.name])} {m.unit}".rstrip() for m in scored if m.name in result
    )
    split = f"the {study.sections.evaluation.score_on} split"
    places = {"images": split, "pairs": "fresh pairs", "own": "the data of its trainer"}
    where = places[study.of(objective).dataset.kind]
    print_note(f"{scores} on {where}{memory}{precision}")
    return result


def _device(name: str) -> torch.device:
    import torch

    from clsweep.train.device import trial_device

    try:
        device = trial_device(name)
        torch.empty(1, device=device).cpu()
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        reason = f"not usable here: {first_line(error)}"
        raise RequestError(f"--device {name}: {reason}. Expected: cpu, or a GPU as cuda") from None
    return device


def planned_trial(study: Study, objective: str, config: int) -> PlannedTrial:
    """The planned trial of one objective and configuration, on the study's first seed."""
    names = [o.name for o in study.objectives]
    if objective not in names:
        expected = f"Expected one of: {', '.join(names)}"
        raise RequestError(
            f"--objective {objective}: no such objective.{nearest(objective, names)} {expected}"
        )
    configs = {t.config: t for t in reversed(plan_trials(study)) if t.objective == objective}
    if config not in configs:
        raise RequestError(
            f"--config {config}: '{objective}' has the configurations 0 to {max(configs)}"
        )
    return configs[config]

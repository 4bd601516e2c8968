"""What a trial has left as torch objects: its encoder, its last checkpoint."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import Any

import pyarrow.compute as pc

from clsweep.catalog import COMPONENT, Component, named
from clsweep.catalog.open_encoders import is_own, search_working_folder
from clsweep.catalog.plugins import declare, execute, opened_plugins, would_execute
from clsweep.catalog.rows import Row
from clsweep.errors import RequestError, first_line, listed, nearest
from clsweep.results.folder import ResultsFolder, checkpoint_file, encoder_file
from clsweep.study.document import refuse_untrusted

About = dict[str, Any]

ADVICE = "A study with encoders: {keep: all} keeps every trial's"


def load_encoder(folder: ResultsFolder, trial_id: str, *, trust: bool = False) -> tuple[Any, About]:
    """The encoder of a trial in eval mode, and what its file says of it. With `trust` code of the
    folder or the user makes it, else StudyError; RequestError where there is none, or a damaged
    one.
    """
    row = _row_with_encoder(folder, trial_id)
    _allow(folder, str(row["encoder"]), trust)
    from clsweep.results.weights import agreed, unpack

    place = folder.place(encoder_file(trial_id))
    weights, about = unpack(folder.decoded(encoder_file(trial_id), bytes), place)
    import torch

    from clsweep.objective.build import build_encoder

    state = {name: torch.from_numpy(array) for name, array in weights.items()}
    try:
        about = agreed(about, row)
        with contextlib.suppress(NotImplementedError), torch.device("meta"):
            _require_alike(state, build_encoder(about).state_dict())  # before it takes its memory
        encoder = build_encoder(about)
        encoder.load_state_dict(state)
    except (RuntimeError, LookupError, ValueError, TypeError, OverflowError) as error:
        wrong = "does not hold the encoder of this trial"
        raise RequestError(f"{place}: {wrong}: {first_line(error)}") from None
    return encoder.eval(), about


def _allow(folder: ResultsFolder, encoder: str, trust: bool) -> None:
    """Have the code of an encoder that is not the catalog's, where it is trusted."""
    recorded = folder.document().plugins
    names = {row.name for plugin in recorded for row in plugin.rows if isinstance(row, Component)}
    plugins = recorded if encoder in names else ()
    if is_own(encoder):
        search_working_folder()
    if not trust:
        refuse_untrusted(would_execute(plugins, [encoder] if is_own(encoder) else []), folder.path)
    if is_own(encoder):
        try:
            named(encoder)
        except LookupError as error:
            hint = "Go where that module lies, or name its folder in PYTHONPATH"
            raise RequestError(f"{folder.path}: {error}. {hint}") from None
    if plugins:
        plugins = opened_plugins(plugins)
        declare(plugins)
        execute(plugins)


def _require_alike(state: Mapping[str, Any], wanted: Mapping[str, Any]) -> None:
    expected, given = (
        {name: (tuple(t.shape), t.dtype) for name, t in each.items()} for each in (wanted, state)
    )
    for name in {**expected, **given}:
        if expected.get(name) != given.get(name):
            shapes = (each.get(name, "nothing") for each in (expected, given))
            raise ValueError("{}: expected {}, given {}".format(name, *shapes))


def load_checkpoint(folder: ResultsFolder, trial_id: str) -> dict[str, Any]:
    """The last checkpoint of a trial: under "state" the state dicts of networks and optimiser, on
    the CPU. RequestError where there is none, as it was not kept or not saved yet, or a damaged
    one.
    """
    from clsweep.train.attempt import unpack_unverified

    payload = folder.checkpoint(trial_id)
    if payload is None:
        stored = listed(folder.stored("checkpoints"))
        raise RequestError(
            f"{_at(folder, trial_id)}: no checkpoint of this trial. Stored: {stored}. A study with "
            "checkpoints: {keep: best} keeps those of each objective's best configuration"
        )
    try:
        return unpack_unverified(payload)
    except Exception as error:  # a damaged archive or pickle raises whatever it comes to
        place = folder.place(checkpoint_file(trial_id))
        wrong = "cannot be read as a checkpoint"
        raise RequestError(f"{place}: {wrong}: {first_line(error)}") from None


def _row_with_encoder(folder: ResultsFolder, trial_id: str) -> Row:
    """The row of a trial, which has an encoder; RequestError with the reason if it has none."""
    planned, trials = folder.plan(["trial_id"])["trial_id"].to_pylist(), folder.trials()
    found: list[Row] = trials.filter(pc.equal(trials["trial_id"], trial_id)).to_pylist()
    row = found[0] if found else {}
    framework = COMPONENT["framework"].get(str(row.get("framework")))
    wrong = ""
    if trial_id not in planned:
        wrong = f"no such trial.{nearest(trial_id, planned)} See: clsweep trials {folder.path}"
    elif not found:
        wrong = f"this trial has not finished yet; see clsweep status {folder.path}"
    elif row["status"] == "failed":
        error = f"{row['error_class']}: {(row['error_message'] or '').partition(chr(10))[0]}"
        wrong = f"this trial failed and has no encoder: {error}"
    elif framework is not None and framework.kind == "pairs":
        given = f"given one of framework {row['framework']}"
        wrong = f"expected a trial that trains an encoder, {given}"
    elif trial_id not in folder.stored("encoders"):
        kept = listed(folder.stored("encoders"))
        wrong = f"the encoder of this trial was not kept. Kept: {kept}. {ADVICE}"
    if wrong:
        raise RequestError(f"{_at(folder, trial_id)}: {wrong}")
    return row


def _at(folder: ResultsFolder, trial_id: str) -> str:
    """DIR/TRIAL_ID, as a command takes it."""
    return f"{folder.path}/{trial_id}" if folder.local_path else folder.place(trial_id)

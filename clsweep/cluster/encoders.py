"""Trained encoders on their way to the results folder, apart from Tune's metrics and Train's return values."""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Iterator, Mapping
from importlib.metadata import version
from typing import Any

from clsweep.errors import RequestError
from clsweep.objective.catalog import COMPONENT, DATASET
from clsweep.results.encoders import pack
from clsweep.results.store import ResultsFolder

Row = dict[str, Any]


class EncoderNotWrittenError(RequestError):
    """A trained encoder could not be written: the study stops, as for a row that cannot be written."""


class EncoderWriter:
    """An actor on the driver's machine, where the results folder is."""

    def __init__(self, path: str):
        self._folder = ResultsFolder(path)

    def write(self, trial_id: str, payload: bytes) -> None:
        self._folder.add_encoder(trial_id, payload)


@contextlib.contextmanager
def encoder_writer(folder: ResultsFolder, *, wanted: bool) -> Iterator[str | None]:
    """The name of an `EncoderWriter` for the time of a run; None if no trial is to send its encoder."""
    if not wanted:
        yield None
        return
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    here = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=False)
    options = {"num_cpus": 0, "max_restarts": -1, "max_task_retries": 3, "scheduling_strategy": here}
    name = f"clsweep-encoders-{uuid.uuid4().hex}"
    actor = ray.remote(**options)(EncoderWriter).options(name=name).remote(folder.local_path)
    try:
        yield name
    finally:
        ray.kill(actor)  # nobody writes to the folder once its run has ended


def send_encoder(writer: str, row: Mapping[str, Any], weights: Mapping[str, Any], normalisation: Row) -> None:
    """Return once the encoder of a trial, a state dict on the CPU, is on the driver's disk.

    Raises:
        EncoderNotWrittenError: it could not be written there.
    """
    import ray

    payload = pack({name: tensor.numpy() for name, tensor in weights.items()}, about_encoder(row, normalisation))
    try:
        ray.get(ray.get_actor(writer).write.remote(row["trial_id"], payload))
    except (ray.exceptions.RayError, ValueError) as error:  # ValueError: no such actor
        reason = str(getattr(error, "cause", None) or error).strip().splitlines()[0]
        raise EncoderNotWrittenError(f"the encoder of {row['trial_id']} was not kept: {reason}") from None


def about_encoder(row: Mapping[str, Any], normalisation: Row) -> Row:
    """What the reader of an encoder needs to build it and to feed it."""
    names = ["trial_id", "encoder", *COMPONENT["encoder"][row["encoder"]].owns, "dataset", "seed"]
    about = {name: row[name] for name in names}
    if image_size := row.get("image_size") or DATASET[row["dataset"]].image_size:
        about["image_size"] = image_size
    return {**about, "normalisation": normalisation, "clsweep_version": version("clsweep")}

"""Scores without training, once per study: raw pixels and untrained encoders, beside the trials on
the same cluster.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from clsweep.catalog.rows import Row
from clsweep.cluster.trial import TrialContext, describe
from clsweep.data.availability import DataPlace
from clsweep.display.text import say
from clsweep.results.folder import ResultsFolder
from clsweep.study.design import PlannedTrial, Study, placed_references, reference_rows


class References:
    """One Ray task that scores all references of a study; `collect` waits for it and keeps the
    rows.
    """

    def __init__(
        self,
        study: Study,
        folder: ResultsFolder,
        planned: Sequence[PlannedTrial],
        context: TrialContext,
    ):
        import ray

        self._folder = folder
        score = ray.remote(
            num_cpus=context.cpus_per_worker,
            num_gpus=context.gpus_per_worker,
            max_retries=study.sections.resources.max_restarts,
        )(_score)
        self._task = score.remote(placed_references(study, planned), asdict(context))

    def collect(self) -> None:
        """Write `references.parquet`. Without it the study's own numbers are none the worse: a
        failure is only said.
        """
        import ray

        while not ray.wait([self._task], timeout=1.0)[0]:
            pass  # where Ray is lost, we are interrupted here
        try:
            self._folder.add_references(ray.get(self._task))
        except ray.exceptions.RayError as error:
            say(f"The reference scores failed: {describe(error)['error_message'].splitlines()[0]}")


def are_owed(study: Study, folder: ResultsFolder, planned: Sequence[PlannedTrial]) -> bool:
    """Whether a study's references have yet to be scored: it is new, was interrupted meanwhile, or
    was extended.
    """
    num_recorded = folder.references().num_rows if folder.exists() else 0
    return len(reference_rows(study, planned)) > num_recorded


def _score(rows: Sequence[tuple[Row, DataPlace]], context: Mapping[str, Any]) -> list[Row]:
    import torch

    from clsweep.train.memory import limited_memory
    from clsweep.train.scores import score_reference

    torch.set_num_threads(context["cpus_per_worker"])
    TrialContext.restored(context).plug_in()
    device = "cuda" if context["gpus_per_worker"] else "cpu"
    with limited_memory({}, torch.device(device), context["gpus_per_worker"]):
        return [{**row, **score_reference(row, place=place, device=device)} for row, place in rows]

"""The frameworks in which some views are targets, which the other views predict: LeJEPA, SwAV and
DINO; with the soft assignments of samples to prototypes, and the loss of predicting them.

Which views are targets is said by the comparison: of `multicrop` the global ones. SwAV and DINO
compare views by their scores on prototypes. They compute these where the whole batch is at hand, in
`prepare`, alike on every worker: so what is sent between workers is no wider than a projection.

Shapes: N samples of the global batch, D features of a projection, K prototypes. Scores are products
of unit vectors; half types are computed in float32, whatever autocast says.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, cast

import torch
import torch.nn.functional as F
from torch import Generator, Tensor, nn

from clsweep.model.queues import FeatureQueue
from clsweep.objective.contrastive import check_positive, shape_of, wide
from clsweep.objective.framework import (
    Criterion,
    Embeddings,
    MomentumFramework,
    PairFramework,
    unit,
)


class LeJEPA(PairFramework):
    """Every view predicts the mean projection of the targets (LeJEPA 5.1, Algorithm 2), whose
    gradient is not stopped.

    The loss is the mean over views, the targets included. With the regularizer `sigreg` the total
    is LeJEPA's.
    """

    norm = "hidden"

    def over_pairs(self, prepared: Embeddings, criterion: Criterion) -> Tensor:
        online = prepared["online"]
        targets = sorted({target for target, _ in self.comparison.directions})
        centre_ND = torch.stack([online[view] for view in targets]).mean(0)
        return torch.stack([criterion(z_ND, centre_ND) for z_ND in online.values()])


class PrototypeFramework(PairFramework):
    """A framework whose views are compared by their scores on prototypes.

    The mean runs over all (target, prediction) alike, also where only one side of a pair is a
    target. The prototypes stay as they are initialised for the first `freeze_epochs` epochs: they
    then have no gradient at all, so that neither momentum nor weight decay moves them.
    """

    def __init__(self, *, num_prototypes: int, freeze_epochs: int, **shared: Any):
        super().__init__(**shared)
        self.prototypes = nn.Linear(shared["proj_dim"], num_prototypes, bias=False)
        self.freeze_epochs, self.epoch = freeze_epochs, 0
        # Every worker has the gradient of the whole batch for them: there is nothing to average.
        self._ddp_params_and_buffers_to_ignore = ["prototypes.weight"]

    def begin_epoch(self, epoch: int, seed: int = 0) -> None:
        super().begin_epoch(epoch, seed)
        self.epoch = epoch

    @property
    def weight_KD(self) -> Tensor:
        """The prototypes, without gradient while they are frozen."""
        weight_KD = self.prototypes.weight
        return weight_KD.detach() if self.epoch < self.freeze_epochs else weight_KD

    def over_pairs(self, prepared: Embeddings, criterion: Criterion) -> Tensor:
        scores, codes, ways = prepared["scores"], prepared["codes"], self.comparison.directions
        return torch.stack([criterion(scores[view], codes[target]) for target, view in ways])


class SwAV(PrototypeFramework):
    """A view predicts the codes of another: its assignment to prototypes by Sinkhorn-Knopp over the
    global batch (SwAV Eq. 1-5).

    From epoch `swav_queue_start` on every target view has a queue of its earlier projections. Once
    full, these share the assignment (SwAV 3.2, "Working with small batches"). The prototypes have
    length 1 whenever a step begins.
    """

    norm = "hidden"

    def __init__(
        self,
        *,
        sinkhorn_epsilon: float,
        sinkhorn_iterations: int,
        swav_queue: int,
        swav_queue_start: int,
        **shared: Any,
    ):
        super().__init__(**shared)
        self.sinkhorn_epsilon, self.sinkhorn_iterations = sinkhorn_epsilon, sinkhorn_iterations
        self.swav_queue_start = swav_queue_start
        self._normalise()
        targets = sorted({target for target, _ in self.comparison.directions}) * bool(swav_queue)
        self.queues = nn.ModuleDict(
            {str(view): FeatureQueue(swav_queue, shared["proj_dim"]) for view in targets}
        )

    def prepare(self, embeddings: Embeddings, generator: Generator) -> Embeddings:
        e = super().prepare(embeddings, generator)
        units = unit(e["online"])
        scores = {view: z_ND @ self.weight_KD.T for view, z_ND in units.items()}
        targets = sorted({target for target, _ in self.comparison.directions})
        codes = {target: self._codes(target, scores[target]) for target in targets}
        return e | {"unit": units, "scores": scores, "codes": codes}

    @torch.no_grad()
    def _codes(self, view: int, scores_NK: Tensor) -> Tensor:
        together = scores_NK
        queue = self._queues_in_use().get(view)
        if queue is not None and queue.is_full:
            together = torch.cat([scores_NK, queue.rows_KD @ self.weight_KD.T])
        codes = sinkhorn(together, self.sinkhorn_epsilon, self.sinkhorn_iterations)
        return codes[: len(scores_NK)]

    def _queues_in_use(self) -> dict[int, FeatureQueue]:
        if self.epoch < self.swav_queue_start:
            return {}
        return {int(view): cast(FeatureQueue, queue) for view, queue in self.queues.items()}

    @torch.no_grad()
    def after_step(self, prepared: Embeddings, progress: float, generator: Generator) -> None:
        self._normalise()
        for view, queue in self._queues_in_use().items():
            queue.put(prepared["unit"][view].detach(), generator)

    @torch.no_grad()
    def _normalise(self) -> None:
        self.prototypes.weight.copy_(F.normalize(self.prototypes.weight, dim=1))


class DINO(MomentumFramework, PrototypeFramework):
    """A view predicts the centred and sharpened scores that a momentum teacher gives to another
    (DINO Eq. 1-4).

    The head is a perceptron with GELU, whose output has length 1, and prototypes whose rows have
    length 1: weight normalisation with its gain frozen at 1. The teacher sees the targets alone.
    Its temperature rises linearly over `teacher_tau_epochs` epochs. The centre is a moving mean of
    its scores.
    """

    activation = nn.GELU
    centre_K: Tensor

    def __init__(
        self,
        *,
        teacher_tau: float,
        teacher_tau_start: float,
        teacher_tau_epochs: int,
        center_momentum: float,
        score_network: Literal["student", "teacher"] = "student",
        **shared: Any,
    ):
        super().__init__(**shared)
        self.score_network = score_network
        self.teacher_tau, self.teacher_tau_start = teacher_tau, teacher_tau_start
        self.teacher_tau_epochs, self.center_momentum = teacher_tau_epochs, center_momentum
        self.register_buffer("centre_K", torch.zeros(shared["num_prototypes"]))

    @property
    def followed(self) -> list[nn.Module]:
        return [*super().followed, self.prototypes]

    @property
    def scored(self) -> tuple[nn.Module, nn.Module | None]:
        if self.score_network == "student":
            return super().scored
        return self.target[0], self.target[1]

    def teacher_tau_at(self, epoch: int) -> float:
        """The teacher's temperature in an epoch, counted from 0."""
        if epoch >= self.teacher_tau_epochs:
            return self.teacher_tau
        share = epoch / max(1, self.teacher_tau_epochs - 1)
        return self.teacher_tau_start + share * (self.teacher_tau - self.teacher_tau_start)

    def forward(self, views: Sequence[Tensor]) -> Embeddings:
        return self.project_both(views, [way[::-1] for way in self.comparison.directions])

    def prepare(self, embeddings: Embeddings, generator: Generator) -> Embeddings:
        e = super().prepare(embeddings, generator)
        logits = _cosines(e["target"], cast(nn.Linear, self.target[-1]).weight)
        temperature = self.teacher_tau_at(self.epoch)
        codes = {
            view: torch.softmax((scores_NK - self.centre_K) / temperature, dim=1)
            for view, scores_NK in logits.items()
        }
        return e | {
            "scores": _cosines(e["online"], self.weight_KD),
            "logits": logits,
            "codes": codes,
        }

    @torch.no_grad()
    def after_step(self, prepared: Embeddings, progress: float, generator: Generator) -> None:
        super().after_step(prepared, progress, generator)
        mean_K = torch.stack([x.mean(0) for x in prepared["logits"].values()]).mean(0)
        self.centre_K.lerp_(mean_K.to(self.centre_K.dtype), 1 - self.center_momentum)


def _cosines(projections: Mapping[int, Tensor], weight_KD: Tensor) -> dict[int, Tensor]:
    rows_KD = F.normalize(weight_KD, dim=1)
    return {view: z_ND @ rows_KD.T for view, z_ND in unit(projections).items()}


def soft_cross_entropy(scores_NK: Tensor, targets_NK: Tensor, tau: float) -> Tensor:
    """Cross-entropy with soft targets (SwAV Eq. 2; DINO Eq. 3): l = -sum_k q_k log softmax(s /
    tau)_k, the mean over samples.

    Args:
        scores_NK: float (N, K), scores of one view, N >= 1, K >= 2.
        targets_NK: float (N, K), another view's assignment q: its rows are >= 0 and sum to 1.
            Which side has a gradient is the framework's business.
        tau: temperature of the prediction, > 0.

    Raises:
        ValueError: shapes differ, no samples, K < 2, tau <= 0.
    """
    check_positive(tau=tau)
    if scores_NK.shape != targets_NK.shape or scores_NK.ndim != 2:
        given = f"{shape_of(scores_NK)} and {shape_of(targets_NK)}"
        raise ValueError(f"expected scores and targets of one shape (N, K), given {given}")
    if len(scores_NK) < 1 or scores_NK.shape[1] < 2:
        given = f"(N, K) = {shape_of(scores_NK)}"
        raise ValueError(f"expected at least 1 sample and 2 prototypes, given {given}")
    log_p_NK = torch.log_softmax(wide(scores_NK) / tau, dim=1)
    return -(wide(targets_NK) * log_p_NK).sum(1).mean()


@torch.no_grad()
def sinkhorn(scores_NK: Tensor, epsilon: float, iterations: int) -> Tensor:
    """The codes of a batch by Sinkhorn-Knopp (SwAV Eq. 3-5): rows sum to 1, and all prototypes get
    about the same share.

    Q = diag(u) exp(s / epsilon) diag(v). Each iteration gives every prototype the same sum over the
    samples, then every sample the sum 1. In logarithms, where the authors' code takes exp(s /
    epsilon): finite for any epsilon.

    Args:
        scores_NK: of the global batch, and of what is queued with it.
        epsilon: smoothness of the assignment, > 0: the smaller, the nearer to one prototype each.
        iterations: >= 1.

    Returns:
        (N, K) in float32 or wider, without gradient.
    """
    check_positive(epsilon=epsilon, iterations=iterations)
    log_q_NK = wide(scores_NK) / epsilon
    for _ in range(iterations):
        log_q_NK = log_q_NK - log_q_NK.logsumexp(0)
        log_q_NK = log_q_NK - log_q_NK.logsumexp(1, keepdim=True)
    return log_q_NK.exp()

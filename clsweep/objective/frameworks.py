"""The frameworks. `objective.framework` says what one is, and what the shapes mean."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import torch
from torch import Generator, Tensor, nn

from clsweep.model.grouped_norm import group_norms
from clsweep.model.heads import Norm, mlp
from clsweep.model.patch_projection import freeze_patch_projection
from clsweep.model.queues import FeatureQueue
from clsweep.model.transfer import to_device
from clsweep.objective.framework import (
    ComparingFramework,
    Comparison,
    Criterion,
    Embeddings,
    Framework,
    Losses,
    MomentumFramework,
    PairFramework,
    PredictorFramework,
    per_view,
    unit,
)
from clsweep.objective.losses import both_ways_scale
from clsweep.objective.negatives import draw_others


class SimCLR(PairFramework):
    """The other samples of the batch are the negatives (DCL Fig. 2).

    With `num_negatives` (eqco) every anchor has so many of them, drawn for each anchor (EqCo 2.3).
    `proj_norm` says where the projector has batch norm: the paper says nothing of it.
    """

    def __init__(
        self, *, num_negatives: int | None = None, proj_norm: Norm = "none", **shared: Any
    ):
        self.norm = proj_norm
        super().__init__(**shared)
        self.num_negatives = num_negatives

    def prepare(self, embeddings: Embeddings, generator: Generator) -> Embeddings:
        e = super().prepare(embeddings, generator)
        e = e | {"unit": unit(e["online"])}
        if self.num_negatives is None:
            return e
        return e | {"index": _drawn(e["unit"], 2, self.num_negatives, generator)}

    def compare(self, e: Embeddings, i: int, j: int, criterion: Criterion) -> list[Tensor]:
        z = e["unit"]
        if self.num_negatives is None:
            return [criterion(z[i], z[j])]
        both = torch.cat([z[i], z[j]])
        return [criterion(z[a], z[b], negatives=both, **_chosen(e, a)) for a, b in ((i, j), (j, i))]


class SupCon(SimCLR):
    """All views of the batch at once: those of one class are positives (SupCon Eq. 2)."""

    def loss(self, prepared: Embeddings, labels_N: Tensor | None = None) -> Losses:
        assert labels_N is not None
        units = prepared["unit"]
        base = self.comparison.criterion(torch.cat([*units.values()]), labels_N.repeat(len(units)))
        return self.total(prepared, base[None])


class KeyFramework(MomentumFramework):
    """Queries, online, against keys of the momentum encoder.

    Of a pair of views the first is the query and the other its key; `symmetric`: each is both in
    turn.

    With `key_norm` "shuffle" batch norm sees groups of `norm_group` images, as MoCo's sees those of
    a GPU, and one view at a time. Queries and keys are grouped differently, so that no key shares
    its statistics with its query. The groups of keys are strided, where MoCo draws a permutation:
    the order of a batch is random already. So the result depends on no number of workers.
    """

    def __init__(
        self,
        *,
        symmetric: bool,
        key_norm: Literal["sync", "shuffle"] = "sync",
        norm_group: int = 32,
        **shared: Any,
    ):
        super().__init__(**shared)
        self.symmetric, self.is_apart = symmetric, key_norm == "shuffle"
        if self.is_apart:
            group_norms(self.encoder, norm_group, is_strided=False)
            group_norms(self.projector, norm_group, is_strided=False)
            group_norms(self.target, norm_group, is_strided=True)

    def directions(self, i: int, j: int) -> list[tuple[int, int]]:
        """(query, key) of a pair of views."""
        return [(i, j), (j, i)] if self.symmetric else [(i, j)]

    def forward(self, views: Sequence[Tensor]) -> Embeddings:
        pairs = self.comparison.pairs
        return self.project_both(views, [way for pair in pairs for way in self.directions(*pair)])

    def prepare(self, embeddings: Embeddings, generator: Generator) -> Embeddings:
        return super().prepare(embeddings, generator) | {
            "unit": unit(embeddings["online"]),
            "keys": unit(embeddings["target"]),
        }


class MoCo(KeyFramework):
    """Keys of a queue are the negatives (MoCo v2; EqCo 2.3 if it is shorter than a batch)."""

    def __init__(self, *, num_negatives: int, **shared: Any):
        super().__init__(**shared)
        self.queue = FeatureQueue(num_negatives, shared["proj_dim"])

    def compare(self, e: Embeddings, i: int, j: int, criterion: Criterion) -> list[Tensor]:
        memory, both = {"negatives": self.queue.rows_KD}, self.directions(i, j)
        return [criterion(e["unit"][a], e["keys"][b], **memory) for a, b in both]

    def after_step(self, prepared: Embeddings, progress: float, generator: Generator) -> None:
        super().after_step(prepared, progress, generator)
        self.queue.put(torch.cat([keys for _, keys in sorted(prepared["keys"].items())]), generator)


class SiMo(KeyFramework):
    """Keys of the batch are the negatives: K of the other samples', and no queue (EqCo 3)."""

    norm = "all"

    def __init__(self, *, num_negatives: int, **shared: Any):
        super().__init__(**shared)
        self.num_negatives = num_negatives

    def prepare(self, embeddings: Embeddings, generator: Generator) -> Embeddings:
        e = super().prepare(embeddings, generator)
        return e | {"index": _drawn(e["keys"], 1, self.num_negatives, generator)}

    def compare(self, e: Embeddings, i: int, j: int, criterion: Criterion) -> list[Tensor]:
        return [
            criterion(e["unit"][a], e["keys"][b], negatives=e["keys"][b], **_chosen(e, b))
            for a, b in self.directions(i, j)
        ]


class BYOL(PredictorFramework, MomentumFramework):
    """Predictions of one view against momentum targets of the other, both ways."""

    norm: Norm = "hidden"

    def forward(self, views: Sequence[Tensor]) -> Embeddings:
        return super().forward(views) | {"target": self.project_target(dict(enumerate(views)))}

    def compare(self, e: Embeddings, i: int, j: int, criterion: Criterion) -> list[Tensor]:
        return [criterion(e["predicted"][a], e["target"][b]) for a, b in ((i, j), (j, i))]


class MoCoV3(BYOL):
    """Predictions of one view against momentum keys of the other, both ways; the other samples'
    keys of that view are the negatives (MoCo v3 Algorithm 1).

    With `scale_by_tau` the losses of both directions are added and multiplied by 2 tau, as there:
    loss and gradient, not the regularizer. Otherwise the loss is their mean.
    """

    norm = pred_norm = "bare"

    def __init__(
        self,
        *,
        encoder: Any,
        freeze_patch_embed: bool = False,
        scale_by_tau: bool = False,
        **shared: Any,
    ):
        if freeze_patch_embed:  # before there is a momentum copy
            freeze_patch_projection(encoder)
        super().__init__(encoder=encoder, **shared)
        self.scale_by_tau = scale_by_tau

    def prepare(self, embeddings: Embeddings, generator: Generator) -> Embeddings:
        return super().prepare(embeddings, generator) | {
            "predicted": unit(embeddings["predicted"]),
            "keys": unit(embeddings["target"]),
        }

    def compare(self, e: Embeddings, i: int, j: int, criterion: Criterion) -> list[Tensor]:
        predicted, keys = e["predicted"], e["keys"]
        return [
            criterion(predicted[a], keys[b], negatives=keys[b], skip_own=True)
            for a, b in ((i, j), (j, i))
        ]

    def loss(self, prepared: Embeddings, labels_N: Tensor | None = None) -> Losses:
        criterion: Any = self.comparison.criterion
        scale = both_ways_scale(criterion.keywords["tau"]) if self.scale_by_tau else 1.0
        return self.total(prepared, scale * self.over_pairs(prepared, criterion))


class SimSiam(PredictorFramework):
    """Predictions of one view against the other's projection, without its gradient, both ways."""

    norm = "bare"

    def compare(self, e: Embeddings, i: int, j: int, criterion: Criterion) -> list[Tensor]:
        return [criterion(e["predicted"][a], e["online"][b].detach()) for a, b in ((i, j), (j, i))]


class BarlowTwins(PairFramework):
    """One loss of the two views' raw projections: their cross-correlation, or VICReg's terms."""

    norm = "hidden"

    def compare(self, e: Embeddings, i: int, j: int, criterion: Criterion) -> list[Tensor]:
        return [criterion(e["online"][i], e["online"][j])]


class WMSE(PairFramework):
    """Whitened projections of two views are to agree; whitening keeps them from collapsing.

    The sub-batches that are whitened are drawn anew at every step, once: the same for all views.
    """

    norm = "hidden"

    def prepare(self, embeddings: Embeddings, generator: Generator) -> Embeddings:
        e = super().prepare(embeddings, generator)
        first = e["online"][0]
        # on the CPU, as every worker must draw the same
        order_N = torch.randperm(len(first), generator=generator)
        return e | {"order": {0: to_device(order_N, first.device)}}

    def compare(self, e: Embeddings, i: int, j: int, criterion: Criterion) -> list[Tensor]:
        return [criterion(e["online"][i], e["online"][j], order_N=e["order"][0])]


class NNCLR(PredictorFramework):
    """The nearest neighbour of a view in a support set against the other's predictions, both ways.

    The neighbour is the anchor and carries no gradient; the other samples' predictions are its
    negatives. The first view's projections enter the support set after the step.
    """

    norm = "bare"

    def __init__(self, *, support_size: int, **shared: Any):
        super().__init__(**shared)
        self.support = FeatureQueue(support_size, shared["proj_dim"])

    def prepare(self, embeddings: Embeddings, generator: Generator) -> Embeddings:
        online = unit(embeddings["online"])
        neighbours = {view: self.support.nearest(z_ND.detach()) for view, z_ND in online.items()}
        return super().prepare(embeddings, generator) | {
            "unit": online,
            "neighbours": neighbours,
            "predicted": unit(embeddings["predicted"]),
        }

    def compare(self, e: Embeddings, i: int, j: int, criterion: Criterion) -> list[Tensor]:
        neighbours, predicted = e["neighbours"], e["predicted"]
        return [
            criterion(neighbours[a], predicted[b], negatives=predicted[b], skip_own=True)
            for a, b in ((i, j), (j, i))
        ]

    def after_step(self, prepared: Embeddings, progress: float, generator: Generator) -> None:
        self.support.put(prepared["unit"][0].detach(), generator)


class Supervised(ComparingFramework):
    """Encoder and linear classifier, trained with every view's labels; features are regularized."""

    def __init__(self, *, encoder: Any, comparison: Comparison, num_classes: int):
        super().__init__()
        self.encoder, self.comparison = encoder, comparison
        self.classifier = nn.Linear(encoder.num_features, num_classes)

    def forward(self, views: Sequence[Tensor]) -> Embeddings:
        features = per_view([self.encoder], dict(enumerate(views)))
        return {"online": features, "logits": per_view([self.classifier], features)}

    def represent(self, x_NCHW: Tensor) -> tuple[Tensor, Tensor]:
        features = self.encoder(x_NCHW)
        return features, features

    def loss(self, prepared: Embeddings, labels_N: Tensor | None = None) -> Losses:
        criterion, logits = self.comparison.criterion, prepared["logits"].values()
        base = torch.stack([criterion(logits_NC, labels_N) for logits_NC in logits])
        return self.comparison.total(base, self.comparison.regularize(prepared), 1)


class MICritic(Framework):
    """Two networks whose dot product scores pairs; negatives of x are the other y (EqCo C)."""

    def __init__(self, *, dim: int, criterion: Criterion, critic_hidden: int, critic_dim: int):
        super().__init__()
        self.criterion = criterion
        self.of_x, self.of_y = (mlp(dim, critic_hidden, critic_dim) for _ in range(2))

    def forward(self, x_ND: Tensor, y_ND: Tensor) -> Tensor:  # type: ignore[override]
        """Loss of N pairs in one direction, x against y, scored by dot products, not cosines."""
        queries_ND, keys_ND = self.of_x(x_ND), self.of_y(y_ND)
        loss: Tensor = self.criterion(queries_ND, keys_ND, negatives=keys_ND, skip_own=True)
        return loss


def _drawn(
    views: Mapping[int, Tensor], num_views: int, num_drawn: int, generator: Generator
) -> dict[int, Tensor]:
    """For each view as anchor, the negatives of each of its N samples: `num_drawn` rows of
    (num_views x N, D), drawn out of the other samples' views. Empty if all of these are taken.
    """
    some = next(iter(views.values()))
    if num_drawn == num_views * (len(some) - 1):
        return {}
    drawn = draw_others(len(some), num_views, num_drawn, generator, some.device, len(views))
    return dict(zip(sorted(views), drawn, strict=True))


def _chosen(e: Embeddings, anchor: int) -> dict[str, Any]:
    """Which negatives an anchor takes: those drawn for it, or all but its own."""
    return {"index_NK": e["index"][anchor]} if e["index"] else {"skip_own": True}

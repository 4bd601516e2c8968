"""The base of the frameworks, which choose what is compared with what.

A framework turns one worker's views into embeddings (`forward`, local) and the embeddings of the
global batch into a loss (`loss`); the training loop gathers in between. So no framework knows how
many workers there are.

Shapes: N samples of the global batch, D features of a projection, K negatives of a query. `i` and
`j` are views.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Literal, NamedTuple

import torch
from torch import Generator, Tensor, nn

from clsweep.model.half_weights import half_weights
from clsweep.model.heads import RELU, Activation, Norm, mlp
from clsweep.objective.contrastive import wide
from clsweep.objective.views import Pairs

# What a forward pass gives, by kind and view: "online" projections, "predicted", "target",
# "logits".
Embeddings = dict[str, dict[int, Tensor]]
Criterion = Callable[..., Tensor]
_LEAST_NORM = 1e-12  # which projections are divided by at least


class LossShapeError(ValueError):
    """A loss of one's own that is no scalar: its mean could be another loss than was meant."""


class Losses(NamedTuple):
    """The loss of a step, and its two parts as means over the pairs of views."""

    total: Tensor
    base: Tensor
    regularizer: Tensor | None


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """A comparison of views: the loss of a pair, the pairs, the regularizer's share (DimCL Eq. 6).

    `targets` are the views that others are compared with, where a framework tells targets from
    predictions; empty: all. A regularizer `of_all_views` takes these together, and a generator.
    Its `draws` are a stream of its own: the negatives that a framework draws stay as they are.
    """

    criterion: Criterion
    pairs: Pairs
    targets: tuple[int, ...] = ()
    pair_reduction: Literal["mean", "sum"] = "mean"
    regularizer: Callable[..., Tensor] | None = None
    of_all_views: bool = False
    lam: float = 0.0
    draws: Generator = field(default_factory=Generator, compare=False)

    @property
    def directions(self) -> list[tuple[int, int]]:
        """(target, view that predicts it) of every pair, both ways where both are targets."""
        both_ways = (way for i, j in self.pairs for way in ((i, j), (j, i)))
        return [(i, j) for i, j in both_ways if not self.targets or i in self.targets]

    def total(self, values_P: Tensor, regularizer: Tensor | None, num_terms: int) -> Losses:
        """lam x regularizer + (1 - lam) x base, the mean over the pairs, both summed over the terms
        or not. LossShapeError where the loss of a pair is no scalar.
        """
        if values_P.ndim != 1:
            raise LossShapeError(
                f"the loss: expected a scalar, given a vector of {values_P[0].numel()}"
            )
        base = values_P.mean() if len(values_P) > 1 else values_P.squeeze(0)
        mixed = base if regularizer is None else self.lam * regularizer + (1 - self.lam) * base
        is_sum = self.pair_reduction == "sum" and num_terms > 1
        return Losses(mixed * num_terms if is_sum else mixed, base, regularizer)

    def draw(self) -> Embeddings:
        """The regularizer's draw for a step: a seed, the same on every worker."""
        if not self.of_all_views:
            return {}
        return {"seed": {0: torch.randint(2**62, (1,), generator=self.draws)}}

    def regularize(self, e: Embeddings) -> Tensor | None:
        """The regularizer over the same pairs, on the online projections before any predictor.

        A view that only the momentum encoder has seen counts with that projection (DimCL Algorithm
        1): encoding it online as well would change the base method, and lam = 0 would not be the
        baseline.
        """
        if self.regularizer is None:
            return None
        views = {**e.get("target", {}), **e["online"]}
        if self.of_all_views:
            generator = Generator().manual_seed(int(e["seed"][0]))
            return self.regularizer(torch.stack(list(views.values())), generator=generator)
        return mean_of([self.regularizer(views[i], views[j]) for i, j in self.pairs])


class Framework(nn.Module):
    """The module that a trial trains around its `encoder`.

    A step calls `forward` on each worker, `prepare` and `loss` on the gathered embeddings. After
    the optimiser `after_step` lets momentum encoders and memories follow.
    """

    encoder: nn.Module

    @property
    def scored(self) -> tuple[nn.Module, nn.Module | None]:
        """The encoder that is scored and kept, and its projector if there is one."""
        return self.encoder, getattr(self, "projector", None)

    @property
    def epoch_draws(self) -> Generator | None:
        """The generator that `begin_epoch` seeds, if any, which a trial that goes on sets."""
        return None

    def begin_epoch(self, epoch: int, seed: int = 0) -> None:
        """Called before the first step of an epoch, with the number of epochs that are done and
        the seed of what this epoch draws for the regularizer.
        """

    def begin_step(self, progress: float) -> None:
        """Called before a step with what `after_step` gets: for numbers that change with it."""

    def forward(self, views: Sequence[Tensor]) -> Embeddings:
        """This worker's embeddings of its share of the batch, by view, not normalised."""
        raise NotImplementedError

    def represent(self, x_NCHW: Tensor) -> tuple[Tensor, Tensor]:
        """Projections and features of images: what diagnostics look at."""
        raise NotImplementedError

    def prepare(self, embeddings: Embeddings, generator: Generator) -> Embeddings:
        """The embeddings, and what is computed from them once for the global batch."""
        return embeddings

    def loss(self, prepared: Embeddings, labels_N: Tensor | None = None) -> Losses:
        """The loss of the global batch from prepared embeddings."""
        raise NotImplementedError

    def after_step(self, prepared: Embeddings, progress: float, generator: Generator) -> None:
        """Called after the optimiser's step; `progress` is the share of all steps that are done."""


class ComparingFramework(Framework):
    """A framework with a comparison, whose regularizer draws anew in every epoch."""

    comparison: Comparison

    def compare_at(self, tau: float) -> None:
        """Have the loss take this temperature from now on."""
        criterion = partial(self.comparison.criterion, tau=tau)
        self.comparison = replace(self.comparison, criterion=criterion)

    @property
    def epoch_draws(self) -> Generator:
        return self.comparison.draws

    def begin_epoch(self, epoch: int, seed: int = 0) -> None:
        self.comparison.draws.manual_seed(seed)

    def prepare(self, embeddings: Embeddings, generator: Generator) -> Embeddings:
        return embeddings | self.comparison.draw()

    def total(self, prepared: Embeddings, values_P: Tensor) -> Losses:
        """The losses of a step from those of its pairs of views, with the regularizer's."""
        regularizer = self.comparison.regularize(prepared)
        return self.comparison.total(values_P, regularizer, len(self.comparison.pairs))


class PairFramework(ComparingFramework):
    """An encoder and a projector whose views are compared pair by pair; each framework says how.

    `compare` gives a criterion's value for one pair: one value, or one for each direction.
    """

    norm: Norm = "none"
    activation: Activation = RELU
    is_apart = False  # views of one size do not share the statistics of a batch norm

    def __init__(
        self,
        *,
        encoder: Any,
        comparison: Comparison,
        proj_dim: int,
        proj_hidden: int,
        proj_layers: int,
    ) -> None:
        super().__init__()
        self.encoder, self.comparison = encoder, comparison
        self.projector = mlp(
            encoder.num_features,
            proj_hidden,
            proj_dim,
            layers=proj_layers,
            norm=self.norm,
            activation=self.activation,
        )

    def forward(self, views: Sequence[Tensor]) -> Embeddings:
        return {"online": self.project(dict(enumerate(views)))}

    def project(self, views: Mapping[int, Tensor]) -> dict[int, Tensor]:
        return per_view([self.encoder, self.projector], views, is_apart=self.is_apart)

    def represent(self, x_NCHW: Tensor) -> tuple[Tensor, Tensor]:
        features = self.encoder(x_NCHW)
        return self.projector(features), features

    def compare(self, e: Embeddings, i: int, j: int, criterion: Criterion) -> list[Tensor]:
        raise NotImplementedError

    def loss(self, prepared: Embeddings, labels_N: Tensor | None = None) -> Losses:
        return self.total(prepared, self.over_pairs(prepared, self.comparison.criterion))

    def over_pairs(self, prepared: Embeddings, criterion: Criterion) -> Tensor:
        """A criterion's values for all pairs of views, (num_pairs, ...): of a pair the mean of
        scalar losses, or every direction's terms.
        """
        pairs = (self.compare(prepared, i, j, criterion) for i, j in self.comparison.pairs)
        return stacked([torch.cat(ways) if ways[0].ndim else mean_of(ways) for ways in pairs])


class MomentumFramework(PairFramework):
    """A framework with targets of a slowly following copy of encoder and projector (EqCo B.1)."""

    def __init__(
        self,
        *,
        momentum: float,
        momentum_schedule: Literal["constant", "cosine"],
        momentum_end: float = 1.0,
        **shared: Any,
    ):
        super().__init__(**shared)
        self.momentum, self.momentum_schedule = momentum, momentum_schedule
        self.momentum_end = momentum_end
        self.target = nn.ModuleList(copy.deepcopy(self.followed)).requires_grad_(False)
        self._pace: Tensor | None = None  # of the step under way, on its GPU

    @property
    def followed(self) -> list[nn.Module]:
        """The modules that have a slowly following copy in `target`, in this order."""
        return [self.encoder, self.projector]

    def project_both(
        self, views: Sequence[Tensor], directions: Iterable[tuple[int, int]]
    ) -> Embeddings:
        """Online projections of the first views of the directions, targets of the second."""
        online, target = (
            {view: views[view] for view in sorted(set(each))}
            for each in zip(*directions, strict=True)
        )
        return {"online": self.project(online), "target": self.project_target(target)}

    @torch.no_grad()
    def project_target(self, views: Mapping[int, Tensor]) -> dict[int, Tensor]:
        encoder, projector, *_ = self.target
        return per_view([encoder, projector], views, is_apart=self.is_apart)

    def momentum_at(self, progress: float) -> float:
        """The momentum at a share of all steps; a cosine raises it to `momentum_end` (BYOL: 1)."""
        if self.momentum_schedule == "constant":
            return self.momentum
        return half_cosine(self.momentum, self.momentum_end, progress)

    def begin_step(self, progress: float) -> None:
        """A momentum that changes lies on the GPU: a step that is replayed there reads it anew."""
        device = next(self.target.parameters()).device
        if device.type == "cuda" and self.momentum_schedule != "constant":
            if self._pace is None:
                self._pace = torch.empty((), device=device)
            self._pace.fill_(1 - self.momentum_at(progress))

    @torch.no_grad()
    def after_step(self, prepared: Embeddings, progress: float, generator: Generator) -> None:
        online = [p.detach() for module in self.followed for p in module.parameters()]
        targets: list[Tensor] = list(self.target.parameters())
        if self._pace is None:
            torch._foreach_lerp_(targets, online, 1 - self.momentum_at(progress))
        else:
            ways = torch._foreach_sub(online, targets)
            torch._foreach_mul_(ways, self._pace)
            torch._foreach_add_(targets, ways)


class PredictorFramework(PairFramework):
    """A framework with a predictor on top of the online projections."""

    pred_norm: Norm = "hidden"

    def __init__(self, *, pred_hidden: int, **shared: Any):
        super().__init__(**shared)
        dim = shared["proj_dim"]
        self.predictor = mlp(dim, pred_hidden, dim, norm=self.pred_norm)

    def forward(self, views: Sequence[Tensor]) -> Embeddings:
        online = self.project(dict(enumerate(views)))
        return {"online": online, "predicted": per_view([self.predictor], online)}


def half_cosine(start: float, end: float, share: float) -> float:
    """From `start` at 0 to `end` at 1, and back at 2."""
    return end + (start - end) * (1 + math.cos(math.pi * share)) / 2


def per_view(
    modules: Sequence[nn.Module], views: Mapping[int, Tensor], *, is_apart: bool = False
) -> dict[int, Tensor]:
    """Every view through the modules, one after the other; those of one size go together, so that
    batch norm sees them all, but where it is to see one at a time.
    """
    alike: dict[Any, list[int]] = {}
    for view, x in views.items():
        alike.setdefault(view if is_apart else x.shape[1:], []).append(view)
    outputs: dict[int, Tensor] = {}
    for same in alike.values():
        out = torch.cat([views[view] for view in same])
        with half_weights(modules, out.device):
            for module in modules:
                out = module(out)
        outputs.update(zip(same, out.chunk(len(same)), strict=True))
    return outputs


def unit(projections: Mapping[int, Tensor]) -> dict[int, Tensor]:
    """Every view's projections at length 1, in float32 or wider, all of them at once."""
    views = [wide(z_ND) for z_ND in projections.values()]
    z: Tensor = _Unit.apply(*views, *views)
    return dict(zip(projections, z.chunk(len(views)), strict=True))


class _Unit(torch.autograd.Function):
    """`F.normalize` of the rows of all views, with half of its operations and to the last bit.

    Each view is given twice. Its gradient comes in the two parts that torch adds to others of the
    same projections one after the other: along the row, and through the row's length.
    """

    @staticmethod
    def forward(ctx: Any, *views: Tensor) -> Tensor:
        x_ND = torch.cat(views[: len(views) // 2])
        norm_N1 = torch.linalg.vector_norm(x_ND, dim=1, keepdim=True)
        length_N1 = norm_N1.clamp_min(_LEAST_NORM)
        unit_ND = x_ND.div_(length_N1)
        ctx.save_for_backward(unit_ND, norm_N1, length_N1)
        ctx.num_views = len(views) // 2
        return unit_ND

    @staticmethod
    def backward(ctx: Any, grad_ND: Tensor) -> tuple[Tensor, ...]:
        # create_graph=True: it would count as a constant, without a word
        if torch.is_grad_enabled():
            raise RuntimeError("the gradient of unit projections has no gradient of its own")
        unit_ND, norm_N1, length_N1 = ctx.saved_tensors
        along_N1 = (unit_ND / length_N1).mul_(grad_ND).sum(1, keepdim=True).neg_()
        along_N1.masked_fill_(norm_N1 <= _LEAST_NORM, 0)  # there the divisor is constant
        parts = grad_ND / length_N1, unit_ND * along_N1
        return tuple(each for part in parts for each in part.chunk(ctx.num_views))


def stacked(values: Sequence[Tensor]) -> Tensor:
    """`torch.stack`, of a single one without a copy: most trials compare one pair of views."""
    return values[0][None] if len(values) == 1 else torch.stack([*values])


def mean_of(values: Sequence[Tensor]) -> Tensor:
    """The mean of scalars; a single one is its own."""
    return values[0] if len(values) == 1 else torch.stack([*values]).mean(0)

"""Operations, bytes and memory of a training step, counted of the shapes of its tensors: nothing is
computed, no GPU is needed, and no image is read.

A step of the trial's own code runs on fake tensors. Each operation counts the products of its
matrices, and the bytes that it reads and writes. Memory is that of all tensors that are alive.
"""

from __future__ import annotations

import math
import weakref
from collections import Counter
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from itertools import pairwise
from time import perf_counter
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import flop_registry

from clsweep.catalog import COMPONENT, OBJECTIVE_PARTS
from clsweep.catalog.known_gpus import KnownGPU
from clsweep.catalog.ownership import arguments, with_defaults
from clsweep.data.augment import Recipe
from clsweep.objective.build import build_encoder, build_objective
from clsweep.objective.views import recipes
from clsweep.train.images import Batch, Images
from clsweep.train.loop import accumulate_gradient
from clsweep.train.state import Precision, TrialState, seeded, state_of, to_trial_device

CPU = torch.device("cpu")
VIEWED, SCORED = 8, 64  # images whose views, and whose features, are counted
_HALF = (torch.bfloat16, torch.float16)
# Columns of a plan that say which trial and which images: no step takes longer by them.
_OF_NO_STEP = frozenset((
    "trial_id", "study", "objective", "config", "seed", "sampler", "dataset", "score_on",
    "val_fraction", "store_size", "store_as", "transfer_store_as", "num_train", "num_unlabeled",
    "images_digest",
))  # fmt: skip
_ASKS = torch.ops.aten._local_scalar_dense.default  # a number, of which fake tensors have none


class Operation(NamedTuple):
    """Floating-point operations of matrix products, in a half type or float32, and bytes moved."""

    flops: int
    is_half: bool
    moved: int


@dataclass
class Cost:
    """Operations and their numbers, launches of loss and networks, the most bytes at once."""

    operations: Counter[Operation] = field(default_factory=Counter)
    launches: int = 0
    peak: int = 0

    def seconds_on(self, gpu: KnownGPU) -> float:
        """Of one operation after another on a GPU that never waits."""
        return sum(
            num * gpu.seconds(each.flops, each.moved, is_half=each.is_half)
            for each, num in self.operations.items()
        )


_steps: dict[Hashable, Cost] = {}  # many trials of a plan have the same


def step_cost(config: Mapping[str, Any], workers: int = 1) -> Cost:
    """Of a training step on the GPU of one worker, without its views, in the trial's precision.

    Args:
        config: as `train_trial` takes it.
        workers: share the batch. Their messages and the others' part of the loss are left out.
    """
    config = _plain(config)
    parts = [COMPONENT[part][config[part]] for part in OBJECTIVE_PARTS]
    others = {"num_classes"}.difference(*(row.takes for row in parts)) | _OF_NO_STEP
    same = frozenset(each for each in config.items() if each[0] not in others)
    if (key := (same, workers)) not in _steps:
        _steps[key] = _step_cost(config, workers)
    return _steps[key]


def _step_cost(config: Mapping[str, Any], workers: int) -> Cost:
    mode = FakeTensorMode(allow_non_fake_inputs=True)
    batch_size = config["batch_size"] // workers
    chunk_size = min(batch_size, config["chunk_size"] // workers or batch_size)
    objective = to_trial_device(seeded(build_objective, config), CPU)
    objective = _faked(objective, mode).train()
    # fp16 takes what bf16 takes, and a CPU's autocast has bf16 alone
    precision = Precision("fp32" if config["precision"] == "fp32" else "bf16", CPU)
    state = state_of(objective, config, precision)
    resident = [*objective.parameters(), *objective.buffers()]
    with mode, _Counting(sum(map(_num_bytes, resident))) as counting:
        _step(state, config, batch_size, chunk_size, counting.cost)
    states = [x for x in tree_leaves([*state.optimizer.state.values()]) if torch.is_tensor(x)]
    buckets = [*objective.parameters()] if workers > 1 else []  # of what they send each other
    counting.cost.peak += sum(map(_num_bytes, [*states, *buckets]))
    return counting.cost


def _step(
    state: TrialState, config: Mapping[str, Any], batch_size: int, chunk_size: int, cost: Cost
) -> None:
    sides = [each.output_size or config["image_size"] for each in recipes(config)]

    def views() -> list[Tensor]:
        shapes = [(chunk_size, 3, side, side) for side in sides]
        return [torch.empty(shape, memory_format=torch.channels_last) for shape in shapes]

    num_chunks = -(-batch_size // chunk_size)
    chunk = views if num_chunks > 1 else partial(list, views())
    labels_N = torch.zeros(batch_size, dtype=torch.int64)
    state.objective.begin_step(0.5)
    batch = Batch(labels_N, [chunk] * num_chunks)
    prepared, _ = accumulate_gradient(state, state.objective, batch)
    cost.launches = cost.operations.total()  # a GPU's optimiser takes few, a CPU's one a tensor
    state.optimizer.step()
    state.objective.after_step(prepared, 0.5, state.draw_generator)


def views_cost(config: Mapping[str, Any]) -> Cost:
    """Of the views of `VIEWED` images. These are made, as draws decide what is done to each."""
    config = _plain(config)
    shape = (VIEWED, config["image_size"], config["image_size"], config.get("channels") or 3)
    return _views_cost(recipes(config), shape, config["view_size"])


@cache
def _views_cost(transforms: Sequence[Recipe], shape: tuple[int, ...], view_size: int) -> Cost:
    rows = torch.arange(VIEWED)
    images = Images(
        pixels_NHWC=torch.zeros(shape, dtype=torch.uint8),
        rows_N=None,
        labels_N=torch.zeros(VIEWED, dtype=torch.int64),
        mean_1C11=torch.zeros(1, shape[3], 1, 1),
        std_1C11=torch.ones(1, shape[3], 1, 1),
        view_size=view_size,
    )
    draws = images.draw(transforms, rows, torch.Generator().manual_seed(0), VIEWED)
    with _Counting() as counting:
        images.views(rows, draws)
    return counting.cost


def busy_seconds(config: Mapping[str, Any], step: Cost, gpu: KnownGPU, workers: int = 1) -> float:
    """Of a step with its views on a device that never waits for its host."""
    share = config["batch_size"] / workers / VIEWED
    return step.seconds_on(gpu) + share * views_cost(config).seconds_on(gpu)


def this_cpu(threads: int) -> KnownGPU:
    """This machine's CPU as if it were a GPU: its products of float32 and its copies, timed."""
    torch.set_num_threads(threads)
    a_NN, read = torch.ones(1024, 1024), torch.ones(2**24)
    written = torch.empty_like(read)
    tflops = 2 * len(a_NN) ** 3 / _least_s(lambda: a_NN @ a_NN) / 1e12
    bandwidth = 2 * _num_bytes(read) / _least_s(lambda: written.copy_(read)) / 1e9
    return KnownGPU("cpu", tflops, tflops, bandwidth, math.inf)


def _least_s(run: Callable[[], object]) -> float:
    """The fastest of five runs."""
    marks = [perf_counter()]
    for _ in range(5):
        run()
        marks.append(perf_counter())
    return min(end - begin for begin, end in pairwise(marks))


_features: dict[Hashable, Cost] = {}


def features_cost(config: Mapping[str, Any]) -> Cost:
    """Of the features of `SCORED` images, which are in float32 whatever a trial trains in."""
    config = _plain(config)
    side = config["view_size"] or config["image_size"]
    same = frozenset(arguments(config, "encoder").items())
    if (key := (config["encoder"], same, side, config.get("channels"))) not in _features:
        mode = FakeTensorMode(allow_non_fake_inputs=True)
        encoder = _faked(seeded(build_encoder, config), mode).eval()
        with mode, torch.no_grad(), _Counting() as counting:
            encoder(torch.empty(SCORED, 3, side, side, memory_format=torch.channels_last))
        _features[key] = counting.cost
    return _features[key]


class _Counting(TorchDispatchMode):
    """Counts what is dispatched inside, but for views of memory; `alive`: bytes before it."""

    def __init__(self, alive: int = 0) -> None:
        super().__init__()
        self.cost = Cost(peak=alive)
        self._alive = alive
        self._storages: set[int] = set()

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Any = None
    ) -> Any:
        if func is _ASKS and isinstance(args[0], torch._subclasses.FakeTensor):
            return 1
        result = func(*args, **(kwargs or {}))
        made = [x for x in tree_leaves(result) if isinstance(x, Tensor)]
        if made and not func.is_view:
            given = [x for x in tree_leaves((args, kwargs)) if isinstance(x, Tensor)]
            formula = flop_registry.get(func._overloadpacket)
            flops = int(formula(*args, **(kwargs or {}), out_val=result)) if formula else 0
            is_half = any(x.dtype in _HALF for x in made)
            moved = sum(map(_num_bytes, (*given, *made)))
            self.cost.operations[Operation(flops, is_half, moved)] += 1
            self._hold(made)
        return result

    def _hold(self, made: Sequence[Tensor]) -> None:
        for storage in (x.untyped_storage() for x in made):
            if storage._cdata not in self._storages:
                self._storages.add(storage._cdata)
                self._alive += storage.nbytes()
                weakref.finalize(storage, self._free, storage._cdata, storage.nbytes())
        self.cost.peak = max(self.cost.peak, self._alive)

    def _free(self, storage: int, num_bytes: int) -> None:
        self._storages.discard(storage)
        self._alive -= num_bytes


def _plain(config: Mapping[str, Any]) -> dict[str, Any]:
    """A trial's configuration without the weights that it begins with, which are not needed."""
    return {**with_defaults(config), "init": "none"}


def _num_bytes(x: Tensor) -> int:
    return x.numel() * x.element_size()


def _faked(module: Any, mode: FakeTensorMode) -> Any:
    """`module` with tensors that have shapes alone."""

    def faked(x: Tensor) -> Tensor:
        with mode:
            return torch.empty_strided(x.shape, x.stride(), dtype=x.dtype)

    for part in module.modules():
        for name, value in part._parameters.items():
            if value is not None:
                part._parameters[name] = nn.Parameter(faked(value), value.requires_grad)
        for name, value in part._buffers.items():
            if value is not None:
                part._buffers[name] = faked(value)
    return module

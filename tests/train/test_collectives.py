"""The global batch in real gloo groups of 1, 2 and 4 processes against one process that sees the
whole batch.

Every group is started once and runs all of `in_a_worker`; the tests look at what its workers
returned.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn

from clsweep.train.collectives import (
    GlobalBatchNorm,
    gather,
    gather_features,
    rank,
    share,
    sync_batch_norm,
    world_size,
)
from clsweep.train.loop import gather_all

pytestmark = pytest.mark.usefixtures("one_thread")
DTYPES = {"float32": torch.float32, "float64": torch.float64}
NUM_ROWS = (1, 3, 4, 9)
BATCH = 8  # the global batch


def random(*shape: int, seed: int, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(
        *shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64
    ).to(dtype)


def mine(x: Tensor) -> Tensor:
    """This worker's equal share of a global batch."""
    per_worker = len(x) // world_size()
    return x[rank() * per_worker : (rank() + 1) * per_worker]


def normalised_network(dtype: torch.dtype) -> nn.Module:
    """Two batch norms, one of them nested, with scales and shifts that are not 1 and 0."""
    module = nn.Sequential(
        nn.Conv2d(3, 4, 3, bias=False),
        nn.BatchNorm2d(4),
        nn.Sequential(nn.ReLU(), nn.Conv2d(4, 2, 1, bias=False), nn.BatchNorm2d(2)),
    )
    with torch.no_grad():
        for i, p in enumerate(module.parameters()):
            p.copy_(1 + 0.5 * random(*p.shape, seed=i))
    return module.to(dtype)


def batch_norm_run(dtype: torch.dtype) -> dict[str, Any]:
    """Two training steps' forward and backward of this worker's share, then evaluation mode."""
    module = sync_batch_norm(normalised_network(dtype), torch.device("cpu"))
    x_2NCHW = 2 + 3 * random(2, BATCH, 3, 5, 5, seed=20, dtype=dtype)
    c_2NCHW = random(2, BATCH, 2, 3, 3, seed=21, dtype=dtype)
    outputs, input_grads = [], []
    for x_NCHW, c_NCHW in zip(x_2NCHW, c_2NCHW, strict=True):
        x_NCHW = mine(x_NCHW).clone().requires_grad_()
        y_NCHW = module(x_NCHW)
        # the sum over the workers of this is the loss of the whole batch: gradients are to be
        # summed
        (mine(c_NCHW) * y_NCHW.square()).sum().backward()
        outputs.append(y_NCHW.detach())
        input_grads.append(x_NCHW.grad)
    module.eval()
    return {
        "outputs": outputs,
        "input_grads": input_grads,
        "param_grads": [p.grad for p in module.parameters()],
        "state": module.state_dict(),
        "eval": module(mine(x_2NCHW[0])).detach(),
    }


def messages_of(run: Callable[[], Any]) -> tuple[int, Any]:
    """How many messages a worker sends, and what it runs gives."""
    sent = []
    with pytest.MonkeyPatch.context() as patch:
        for name in ("all_reduce", "all_gather", "all_gather_into_tensor"):
            send = getattr(dist, name)
            patch.setattr(dist, name, lambda *a, send=send, **k: (sent.append(1), send(*a, **k))[1])
        found = run()
    return len(sent), found


def messages() -> dict[str, int]:
    """Of a batch norm and of the embeddings of a step, each way."""
    norm = sync_batch_norm(nn.BatchNorm2d(3), torch.device("cpu"))
    forward, y = messages_of(lambda: norm(random(2, 3, 4, 4, seed=0).float()))
    backward, _ = messages_of(y.square().sum().backward)
    kinds = {
        kind: {view: random(2, size, seed=view) for view in range(2)}
        for kind, size in (("online", 3), ("target", 5))
    }
    gathered, _ = messages_of(lambda: gather_all(kinds))
    return {"forward": forward, "backward": backward, "gathered": gathered}


def in_a_worker() -> dict[str, Any]:
    """Everything that the tests below look at, computed by one worker."""
    x = (100 * rank() + torch.arange(6.0).reshape(3, 2)).requires_grad_()
    gathered = gather(x)
    (gathered * torch.arange(float(gathered.numel())).reshape(gathered.shape)).sum().backward()
    return {
        "rank": (rank(), world_size()),
        "gathered": gathered.detach(),
        "gathered_grad": x.grad,
        "transposed": gather(torch.arange(6.0).reshape(2, 3).T + 10 * rank()),
        "batch_norm": {name: batch_norm_run(dtype) for name, dtype in DTYPES.items()},
        "messages": messages(),
        "shares": {num_rows: share(num_rows) for num_rows in NUM_ROWS},
        "features": {
            num_rows: gather_features(random(num_rows, 3, seed=num_rows)[share(num_rows)], num_rows)
            for num_rows in NUM_ROWS
        },
    }


@pytest.fixture(scope="module", params=[1, 2, 4])
def workers(request, run_workers):
    return run_workers(__file__, "in_a_worker", request.param)


def test_gather_is_in_rank_order(workers):
    expected = torch.cat([100 * r + torch.arange(6.0).reshape(3, 2) for r in range(len(workers))])
    for r, worker in enumerate(workers):
        assert worker["rank"] == (r, len(workers))
        assert torch.equal(worker["gathered"], expected)
        assert torch.equal(
            worker["transposed"][3 * r : 3 * r + 3], torch.arange(6.0).reshape(2, 3).T + 10 * r
        )


def test_gather_passes_on_the_gradient_of_the_sum_over_workers(workers):
    whole = torch.arange(6.0 * len(workers)).reshape(-1, 2) * len(workers)
    assert torch.equal(torch.cat([worker["gathered_grad"] for worker in workers]), whole)


@pytest.mark.parametrize(("dtype", "tolerance"), [("float32", 1e-4), ("float64", 1e-11)])
def test_batch_norm_is_that_of_the_whole_batch(workers, dtype, tolerance):
    expected = batch_norm_run(torch.float64)  # here, without a process group: plain nn.BatchNorm2d
    runs = [worker["batch_norm"][dtype] for worker in workers]
    close = partial(torch.testing.assert_close, rtol=tolerance, atol=tolerance, check_dtype=False)
    for step in range(2):
        close(torch.cat([run["outputs"][step] for run in runs]), expected["outputs"][step])
        close(torch.cat([run["input_grads"][step] for run in runs]), expected["input_grads"][step])
    close(torch.cat([run["eval"] for run in runs]), expected["eval"])
    for i, grad in enumerate(expected["param_grads"]):
        scale = grad.abs().max()
        close(sum(run["param_grads"][i] for run in runs) / scale, grad / scale)
    for run in runs:
        assert list(run["state"]) == list(expected["state"]), (
            "checkpoints must not depend on the number of workers"
        )
        assert run["state"]["1.num_batches_tracked"] == 2
        close(run["state"], expected["state"])


def test_a_batch_norm_sends_one_message_each_way_and_a_step_all_its_embeddings_in_one(workers):
    expected = 0 if len(workers) == 1 else 1
    for worker in workers:
        assert worker["messages"] == dict.fromkeys(("forward", "backward", "gathered"), expected)


def test_shares_are_a_partition_and_features_come_back_in_its_order(workers):
    for num_rows in NUM_ROWS:
        rows = [row for worker in workers for row in range(num_rows)[worker["shares"][num_rows]]]
        assert rows == list(range(num_rows))
        for worker in workers:
            assert torch.equal(worker["features"][num_rows], random(num_rows, 3, seed=num_rows))


def test_no_process_group_means_one_worker():
    x = random(5, 3, seed=0)
    assert (rank(), world_size()) == (0, 1)
    assert gather(x) is x
    assert share(5) == slice(0, 5)
    assert gather_features(x, 5) is x
    network = normalised_network(torch.float32)
    assert sync_batch_norm(network, torch.device("cpu")) is network
    assert type(network[1]) is nn.BatchNorm2d


@pytest.mark.parametrize("tracked", [True, False])
def test_half_types_go_through_the_global_batch_norm_as_through_torchs(tracked):
    """Autocast gives it bf16. Statistics are float32: a mean ten times the spread must not cost
    more digits.
    """
    x = (10 + random(64, 8, 4, 4, seed=0)).bfloat16()
    ours, torchs = (
        kind(8, track_running_stats=tracked) for kind in (GlobalBatchNorm, nn.BatchNorm2d)
    )
    y, expected = ours(x), torchs(x)
    assert y.dtype == expected.dtype == torch.bfloat16
    torch.testing.assert_close(y, expected, rtol=0.02, atol=0.02)
    if tracked:
        torch.testing.assert_close(ours.running_mean, torchs.running_mean)
        torch.testing.assert_close(ours.running_var, torchs.running_var, rtol=1e-4, atol=1e-4)


LAYOUTS: dict[str, Callable[[Tensor], Tensor]] = {
    "contiguous": Tensor.contiguous,
    "channels_last": lambda x: x.contiguous(memory_format=torch.channels_last),
    "neither": lambda x: x.transpose(2, 3).contiguous().transpose(2, 3),
    "flat": lambda x: x.mean((2, 3)),
}


@pytest.mark.parametrize(
    ("dtype", "affine"), [(torch.float32, True), (torch.float64, False), (torch.bfloat16, True)]
)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_gradients_of_the_global_batch_norm_are_torchs_in_every_layout(layout, affine, dtype):
    is_half, is_flat = dtype == torch.bfloat16, layout == "flat"
    x, grad = (
        LAYOUTS[layout](shift + scale * random(6, 5, 4, 7, seed=seed)).to(dtype)
        for seed, scale, shift in ((0, 3, 2), (1, 1, 0))
    )
    if layout == "neither":
        grad = grad.mean((2, 3), keepdim=True).expand_as(x)  # as that of a mean over the map
    made = GlobalBatchNorm, nn.BatchNorm1d if is_flat else nn.BatchNorm2d
    grads = []
    for kind, at in zip(made, (dtype, torch.float64), strict=True):
        norm = kind(5, affine=affine, dtype=torch.float32 if is_half and at == dtype else at)
        with torch.no_grad():
            for i, p in enumerate(norm.parameters()):
                p.copy_(1 + 0.5 * random(5, seed=2 + i))
        leaf = x.detach().to(at).requires_grad_()
        norm(leaf).backward(grad.to(at))
        grads.append([leaf.grad, *(p.grad for p in norm.parameters())])
    tolerance = {torch.float32: 1e-5, torch.float64: 1e-12}.get(dtype, 0.01)
    assert [g.dtype for g in grads[0][1:]] == [torch.float32 if is_half else dtype] * 2 * affine
    for actual, expected in zip(*grads, strict=True):
        scale = expected.abs().max()
        torch.testing.assert_close(
            actual.double() / scale, expected / scale, rtol=0, atol=tolerance
        )


def test_the_gradient_of_the_global_batch_norm_has_none_of_its_own():
    """It would count as a constant, without a word."""
    x = random(4, 3, 2, 2, seed=0, dtype=torch.float32).requires_grad_()
    (first,) = torch.autograd.grad(GlobalBatchNorm(3)(x).square().sum(), x, create_graph=True)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        first.sum().backward()

"""GPUs that a study can be reckoned for without having one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from clsweep.errors import RequestError, nearest

# Of what a GPU's data sheet promises, the shares that training reaches. Fitted to eight published
# rates of training on images of 224 pixels, channels last: V100 and A100 (NVIDIA's
# DeepLearningExamples, ResNet-50), RTX 3090 (timm's results, ResNet-18 to -101 and ViT-S).
COMPUTE_SHARE, BANDWIDTH_SHARE = 0.9, 0.6
# Of the host, for each launch of networks and loss, with what views and optimiser add: 12.1 ms of a
# step of 201 launches (tests/benchmarks/host_time.py; two busy cores of an Intel Xeon).
HOST_S = 60e-6
# Of a GPU, what a process takes beside all that torch allocates: the driver's context, and the
# kernels of torch and its libraries. They come to 0.4 to 0.6 GB, by GPU and driver; no limit of
# torch counts them, and processes that share a GPU have one each.
CONTEXT_BYTES = 600 * 10**6
LOST = 1.05  # memory between torch's tensors, as a factor


@dataclass(frozen=True)
class KnownGPU:
    """A GPU as its data sheet describes it.

    Attributes:
        half_tflops: dense products of fp16 or bf16 that are summed in float32, TFLOP/s.
        float32_tflops: without tensor cores, as clsweep does not round to TF32.
        bandwidth: of its memory, GB/s.
        memory: GB.
        has_bf16: False where bf16 would be emulated.
    """

    name: str
    half_tflops: float
    float32_tflops: float
    bandwidth: float
    memory: float
    has_bf16: bool = True

    def seconds(self, flops: float, moved: float, *, is_half: bool) -> float:
        """Of one operation: of its products or of its bytes, whichever takes longer."""
        peak = self.half_tflops if is_half else self.float32_tflops
        return max(flops / (peak * COMPUTE_SHARE * 1e12),
                   moved / (self.bandwidth * BANDWIDTH_SHARE * 1e9))  # fmt: skip

    def holds(self, num_bytes: float, share: float = 1.0) -> bool:
        """True if processes whose tensors take so much fit, each with a `share` of the GPU."""
        return num_bytes * LOST + CONTEXT_BYTES <= min(share, 1.0) * self.memory * 1e9


# NVIDIA's data sheets; of the A10G the one that AWS names for its G5 instances, of the RTX cards
# the white papers of Ampere GA102 and Ada.
_GPUS = (
    KnownGPU("t4", 65, 8.1, 320, 16, has_bf16=False),
    KnownGPU("v100", 125, 15.7, 900, 16, has_bf16=False),
    KnownGPU("v100-32", 125, 15.7, 900, 32, has_bf16=False),
    KnownGPU("a10", 125, 31.2, 600, 24),
    KnownGPU("a10g", 70, 31.5, 600, 24),
    KnownGPU("l4", 121, 30.3, 300, 24),
    KnownGPU("rtx3090", 71, 35.6, 936, 24),
    KnownGPU("rtx4090", 165, 82.6, 1008, 24),
    KnownGPU("a100-40", 312, 19.5, 1555, 40),
    KnownGPU("l40s", 362, 91.6, 864, 48),
    KnownGPU("a6000", 155, 38.7, 768, 48),
    KnownGPU("a100-80", 312, 19.5, 2039, 80),
    KnownGPU("h100", 989, 67, 3350, 80),
    KnownGPU("h100-pcie", 756, 51, 2000, 80),
    KnownGPU("h200", 989, 67, 4800, 141),
)
GPUS = {gpu.name: gpu for gpu in _GPUS}


def known_gpu(name: str) -> KnownGPU:
    """The GPU of this name, in any case of letters.

    Raises:
        RequestError: it is not in the table.
    """
    plain = name.lower().replace(" ", "").replace("_", "-")
    if plain not in GPUS:
        known = f"Expected one of: {', '.join(GPUS)}"
        meant = nearest(plain, GPUS, {plain: [n for n in GPUS if n.startswith(f"{plain}-")]})
        raise RequestError(f"--gpu: unknown GPU '{name:.40}'.{meant} {known}")
    return GPUS[plain]


# What a step with a gradient holds in a half type, by encoder and stem: bytes for each pixel of its
# views, and GB that do not depend on the batch. Within 15 % of `train.step_cost` where a batch is
# large. Half of MoCo's and SiMo's views have a gradient; a momentum encoder's views add to others.
_HELD = {
    ("resnet18", "standard"): (262, 0.2), ("resnet18", "small"): (2370, 0.2),
    ("resnet50", "standard"): (885, 0.5), ("resnet50", "small"): (12500, 0.5),
    ("resnet50_2x", "standard"): (1600, 3.6), ("resnet50_4x", "standard"): (2950, 14.1),
}  # fmt: skip
_FRAMEWORKS = {"moco": 0.57, "simo": 0.57, "byol": 1.12, "moco_v3": 1.12, "dino": 1.12}


def step_bytes(row: Mapping[str, Any], workers: int) -> float:
    """About what the networks of a step of a planned trial hold on the GPU of each worker, without
    counting; 0 where that is not known.
    """
    per_pixel, fixed = _HELD.get((row.get("encoder", ""), row.get("stem", "")), (0, 0.0))
    if not per_pixel or not row["epochs"] or not row["view_size"]:
        return 0.0
    side = row["view_size"]
    num_views = 2 if row["views"] == "two" else row["num_views"]
    num_large = min(num_views, row.get("num_global_views", num_views))
    area = num_large * side**2 + (num_views - num_large) * row.get("small_view_size", side) ** 2
    at_once = min(row["chunk_size"] or row["batch_size"], row["batch_size"]) / workers
    half = 2 if row["precision"] == "fp32" else 1
    share = half * _FRAMEWORKS.get(row["framework"], 1.0)
    return float(per_pixel * share * area * at_once + fixed * 1e9)

"""torch.compile of a trial's networks, for the steps of its training. Scores and diagnostics call
the parts of an objective one by one, and these stay as they are.
"""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter

from clsweep.errors import RequestError, first_line
from clsweep.train.state import TrialState


def compile_ahead(state: TrialState, accumulate: Callable[[], object]) -> float:
    """Compile what a step of the trial runs, by a step whose traces are removed; seconds.

    Nothing that a trial before it compiled in this process stays: torch compiles one piece of code
    a few times, and then runs it uncompiled.

    Args:
        accumulate: adds the gradient of the first step, forward and backward.

    Raises:
        RequestError: torch cannot compile here, as without a compiler of C++.
    """
    import torch._dynamo  # a second of its own

    start, objective, draws = perf_counter(), state.objective, state.objective.epoch_draws
    generators = [state.draw_generator, *([draws] if draws else [])]
    before = [generator.get_state() for generator in generators]
    buffers = {name: x.clone() for name, x in objective.named_buffers()}
    torch._dynamo.reset()
    # random numbers are torch's own, as uncompiled; no processes that outlive the trial
    objective.compile(options={"fallback_random": True, "compile_threads": 1})
    try:
        accumulate()
    except torch._dynamo.exc.TorchDynamoException as error:
        raise RequestError(
            f"compile: torch cannot compile this trial here: {first_line(error)}. "
            "Expected: false, or a machine where it can"
        ) from error
    with torch.no_grad():
        for name, x in objective.named_buffers():
            x.copy_(buffers[name])
    for generator, drawn in zip(generators, before, strict=True):
        generator.set_state(drawn)
    state.optimizer.zero_grad(set_to_none=True)
    return perf_counter() - start

"""Ray and the signals of a user, for the time of a run."""

from __future__ import annotations

import contextlib
import functools
import logging
import os
import signal
import socket
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from clsweep.errors import RequestError
from clsweep.machine import num_cores

if TYPE_CHECKING:
    from ray.tune.execution.tune_controller import TuneController
    from ray.tune.experiment import Trial

TOKEN_FILE = Path("~/.ray/auth_token")  # where Ray looks for its token
_LOOPBACK = "lo0" if sys.platform == "darwin" else "lo"
# Of the processes of a local run: nobody on another machine has business with them. Values that the
# user has set stay.
ON_ONE_MACHINE = {
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",  # see `_on_loopback`
    # Exporters of metrics that nobody reads, and that ask for no token. No port has such a number:
    # Ray logs that and goes on, as where another Ray has the port.
    "AUTOSCALER_METRIC_PORT": "-1",
    "DASHBOARD_METRIC_PORT": "-1",
    # Worker groups
    "GLOO_SOCKET_IFNAME": _LOOPBACK,
    "NCCL_SOCKET_IFNAME": _LOOPBACK,
}


@contextlib.contextmanager
def ray_session(address: str, *, dashboard: bool) -> Iterator[str | None]:
    """Ray for the time of a run; left alone if it was already initialised. Its folder, if this run
    has it for itself. The dashboard's process is what cleans up after worker groups.

    Meanwhile SIGTERM ends the run as Ctrl-C does.
    """
    if address != "local" and TOKEN_FILE.expanduser().exists():
        # a client of a named cluster must say so, before Ray is loaded
        os.environ.setdefault("RAY_AUTH_MODE", "token")
    import ray

    from clsweep.cluster import ENVIRONMENT
    from clsweep.cluster.reach import require_answer  # imports Ray

    if ray.is_initialized():
        with _terminable(), _patient():
            yield None
        return
    print("Starting Ray ..." if address == "local" else f"Joining Ray at {address} ...", flush=True)
    if address != "local":
        require_answer(address)
    for name in ("ray", "ray.tune", "ray.train", "ray.data"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
    # The line about a dead worker, with its page of advice: the trial's failed row says what
    # happened.
    ray._private.worker._worker_logs_enabled = False
    quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}
    try:
        if address == "local":
            # Objects are small: rows and contexts.
            with (
                _on_loopback(),
                _with_few_processes(dashboard=dashboard),
                _known_dashboard() as port,
            ):
                context = ray.init(
                    "local",
                    num_cpus=num_cores(),  # Ray itself takes no notice of a pinned process
                    include_dashboard=dashboard,
                    dashboard_port=port,
                    object_store_memory=2**28,
                    _system_config={"enable_metrics_collection": False},
                    **quiet,
                )
        else:
            context = ray.init(address, runtime_env={"env_vars": ENVIRONMENT}, **quiet)
    except (ConnectionError, ValueError, RuntimeError) as error:
        if address == "local":  # a process of Ray did not come up
            raise
        reason = str(error).strip().splitlines()[0]
        raise RequestError(
            f"--address {address}: no Ray cluster lets us in there: {reason}. Expected: local, "
            "auto on a machine of "
            "the cluster, or HOST:PORT of its head; with token authentication, the cluster's "
            f"token in {TOKEN_FILE}"
        ) from None
    # only now: Ray's start sets a handler of its own
    here = _in_our_environment() if address == "local" else contextlib.nullcontext()
    with _terminable(), _uncounted(), _patient(), here:
        try:
            yield context.address_info["session_dir"] if address == "local" else None
        finally:
            _shutdown()


@contextlib.contextmanager
def _on_loopback() -> Iterator[None]:
    """A Ray that is started meanwhile listens on the loopback interface alone.

    That is what Ray does by itself on macOS and Windows, which it knows as no machines of a
    cluster. An address of 127.0.0.1 that it is given it replaces by the machine's own.
    """
    from ray._private import ray_constants

    added = {name: value for name, value in ON_ONE_MACHINE.items() if name not in os.environ}
    os.environ.update(added)
    try:
        # as its environment was when it was imported
        with _replaced(ray_constants, ENABLE_RAY_CLUSTER=False):
            yield
    finally:
        for name in added:
            del os.environ[name]


@contextlib.contextmanager
def _with_few_processes(*, dashboard: bool) -> Iterator[None]:
    """A Ray that is started meanwhile has neither an autoscaler, as no machine can be added, nor a
    process that reads logs, as nobody asks for them: seconds of CPU before the first trial.

    Without a dashboard Ray would still start its process and wait for it, for statistics of usage
    that are off.
    """
    from ray._private import node, parameter

    few = functools.partial(parameter.RayParams, no_monitor=True, include_log_monitor=False)
    unstarted = {} if dashboard else {"start_api_server": lambda *_, **__: None}
    with _replaced(parameter, RayParams=few), _replaced(node.Node, **unstarted):
        yield


@contextlib.contextmanager
def _known_dashboard() -> Iterator[int]:
    """The port for a dashboard, which the processes of a Ray that is started meanwhile know.

    Who cleans up after a worker group asks the dashboard whether its controller lives. By itself it
    would take that of any other Ray that the machine has, or had.
    """
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    name = "RAY_API_SERVER_ADDRESS"
    before = os.environ.get(name)
    os.environ[name] = f"http://127.0.0.1:{port}"
    try:
        yield port
    finally:
        os.environ.pop(name)
        if before is not None:
            os.environ[name] = before


@contextlib.contextmanager
def _in_our_environment() -> Iterator[None]:
    """Trials of a local run have the environment of this process, as every process of its Ray.

    Tune would send them a part of it once more. Ray then starts new processes for them, beside
    those that it has ready.
    """
    from ray.tune.execution import class_cache

    with _replaced(class_cache, DEFAULT_ENV_VARS={}, ENV_VARS_TO_PROPAGATE=set()):
        yield


@contextlib.contextmanager
def _uncounted() -> Iterator[None]:
    """Tune does not count its callbacks for Ray's statistics of usage, which are off: to know them
    it loads each logger that is installed, for seconds.
    """
    from ray.air._internal import usage

    with _replaced(usage, tag_callbacks=lambda *_: False):
        yield


@contextlib.contextmanager
def _patient() -> Iterator[None]:
    """A trial whose process is being started waits for it, and leaves one that is free to a trial
    that has none.

    Tune would give it the free one and drop the other. Where a trial takes less time than a process
    needs to start, there would never be more than one at once.
    """
    from ray.tune.execution import tune_controller

    controller = tune_controller.TuneController
    reuse = getattr(controller, "_maybe_reuse_cached_actor", None)
    if reuse is None:  # another version of Ray
        yield
        return

    def reuse_or_wait(tune: TuneController, trial: Trial) -> bool:
        own = tune._trial_to_actor.get(trial)
        is_starting = own is not None and tune._actor_manager.is_actor_started(own)
        others_wait = bool(tune._pending_trials - tune._trial_to_actor.keys())
        return not (is_starting and others_wait) and bool(reuse(tune, trial))

    with _replaced(controller, _maybe_reuse_cached_actor=reuse_or_wait):
        yield


@contextlib.contextmanager
def _replaced(place: ModuleType | type, **values: Any) -> Iterator[None]:
    """Other values of names of a module or a class for a while, of those that it has."""
    before = {name: getattr(place, name) for name in values if hasattr(place, name)}
    for name in before:
        setattr(place, name, values[name])
    try:
        yield
    finally:
        for name, value in before.items():
            setattr(place, name, value)


def _shutdown() -> None:
    """Stop our Ray even if the user is impatient: a half-stopped one would leave processes
    behind.
    """
    import ray

    signals = (signal.SIGINT, signal.SIGTERM) if _in_main_thread() else ()
    previous = {number: signal.signal(number, signal.SIG_IGN) for number in signals}
    try:
        ray.shutdown()
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


@contextlib.contextmanager
def _terminable() -> Iterator[None]:
    """SIGTERM raises KeyboardInterrupt."""
    if not _in_main_thread():
        yield
        return
    previous = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, previous)


def _in_main_thread() -> bool:
    import threading

    return threading.current_thread() is threading.main_thread()

"""Ray and the signals of a user, for the time of a run."""

from __future__ import annotations

import contextlib
import functools
import logging
import os
import secrets
import shutil
import signal
import socket
import stat
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from clsweep.cluster.environment import ENVIRONMENT, on_one_machine
from clsweep.errors import RequestError
from clsweep.machine import num_cores

if TYPE_CHECKING:
    from ray.tune.execution.tune_controller import TuneController
    from ray.tune.experiment import Trial

TOKEN_FILE = Path("~/.ray/auth_token")  # where Ray looks for the token of a cluster
PREFIX = "clsweep-ray-"  # of the folder that a local Ray has for itself
# of such a folder: the names of sockets in it may have 103 bytes on macOS, a few more on Linux
_LONGEST = 103 - len("/ray/session_0_4194304/sockets/dash_MetricsHead")
_QUIET: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}


@contextlib.contextmanager
def ray_session(address: str, *, dashboard: bool) -> Iterator[str | None]:
    """Ray for the time of a run; left alone if it was already initialised. Its folder, if this run
    has it for itself. The dashboard's process is what cleans up after worker groups.

    Meanwhile SIGTERM, and a terminal that closes, end the run as Ctrl-C does.
    """
    for place in (TOKEN_FILE.parent, TOKEN_FILE):
        _keep_private(os.path.expanduser(place))
    loaded = sys.modules.get("ray")
    if loaded and loaded.is_initialized():
        with _terminable(), _patient():
            yield None
        return
    is_local = address == "local"
    print("Starting Ray ..." if is_local else f"Joining Ray at {address} ...", flush=True)
    session = _started(dashboard=dashboard) if is_local else _joined(address)
    with _terminable(), session as folder, _uncounted(), _patient():
        yield folder


@contextlib.contextmanager
def _started(*, dashboard: bool) -> Iterator[str]:
    """A Ray of our own, which nobody else can talk to. The folder of its session."""
    port = _free_port()
    with (
        _private_folder() as folder,
        on_one_machine(
            # Who cleans up after a worker group asks the dashboard whether its controller lives.
            # By itself it would take that of any other Ray that the machine has, or had.
            RAY_API_SERVER_ADDRESS=f"http://127.0.0.1:{port}",
            TMPDIR=folder,
            VIRTUAL_ENV=None,  # Ray would refuse a folder in there
        ),
        _silent_ray(Path(folder, "token")) as ray,
        _in_our_environment(),
    ):
        try:
            with _undisturbed(), _on_loopback(), _with_few_processes(dashboard=dashboard):
                context = ray.init(
                    "local",
                    num_cpus=num_cores(),  # Ray itself takes no notice of a pinned process
                    include_dashboard=dashboard,
                    dashboard_port=port,
                    # Objects are small: rows and contexts.
                    object_store_memory=2**28,
                    _system_config={"enable_metrics_collection": False},
                    _temp_dir=f"{folder}/ray",  # which Ray lets everybody in
                    **_QUIET,
                )
        except Exception as error:  # of any class
            raise RequestError(
                f"Ray does not start on this machine: {_first_line(error)}. Its logs may say why: "
                f"{folder}/ray/session_latest/logs"
            ) from error
        yield context.address_info["session_dir"]


@contextlib.contextmanager
def _joined(address: str) -> Iterator[None]:
    """A Ray that others have started."""
    if os.path.exists(os.path.expanduser(TOKEN_FILE)):
        # a client of a named cluster must say so
        os.environ.setdefault("RAY_AUTH_MODE", "token")
    with _silent_ray() as ray:
        from clsweep.cluster.reach import require_answer  # imports Ray

        require_answer(address)
        try:
            with _undisturbed():
                ray.init(address, runtime_env={"env_vars": ENVIRONMENT}, **_QUIET)
        except (ConnectionError, ValueError, RuntimeError) as error:
            raise RequestError(
                f"--address {address}: no Ray cluster lets us in there: {_first_line(error)}. "
                "Expected: local, auto on a machine of the cluster, or HOST:PORT of its head; with "
                f"token authentication, the cluster's token in {TOKEN_FILE}"
            ) from None
        yield


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


def _keep_private(path: str) -> None:
    """Nobody else reads a file or folder of ours, though Ray may have made it for everybody. What
    is not ours, and a link, is left alone.
    """
    with contextlib.suppress(OSError):
        opened = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        try:
            found = os.fstat(opened)
            if found.st_uid == os.getuid() and found.st_mode & 0o077:
                os.fchmod(opened, stat.S_IMODE(found.st_mode) & 0o700)
        finally:
            os.close(opened)


@contextlib.contextmanager
def _private_folder() -> Iterator[str]:
    """A folder for Ray: its sockets ask nobody for a token, its logs are anybody's to read.

    It stays, as the logs may say what went wrong; `leftovers.py` removes it.
    """
    folder, given = "", os.environ.get("TMPDIR", "")
    for place in (tempfile.gettempdir, lambda: "/tmp"):
        with contextlib.suppress(OSError):
            place_s = os.path.realpath(place())
            if len(os.fsencode(f"{place_s}/{PREFIX}12345678")) <= _LONGEST:
                folder = tempfile.mkdtemp(prefix=PREFIX, dir=place_s)
                break
    else:
        raise RequestError(
            f"TMPDIR={given:.80}: expected a folder of at most {_LONGEST - 21} bytes that can be "
            "written to, for Ray's sockets; /tmp is none either. Set TMPDIR to another one"
        )
    try:
        yield folder
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt) or not os.path.exists(f"{folder}/ray"):
            shutil.rmtree(folder, ignore_errors=True)
        raise


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port


@contextlib.contextmanager
def _silent_ray(token: Path | None = None) -> Iterator[ModuleType]:
    """Ray itself, which says nothing and is shut down in the end.

    Args:
        token: a file to be, with a token that it asks everybody for meanwhile.
    """
    import ray

    for name in ("ray", "ray.tune", "ray.train", "ray.data"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
    # The line about a dead worker, with its page of advice: the trial's failed row says what
    # happened.
    ray._private.worker._worker_logs_enabled = False
    own = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": str(token)} if token else {}
    if token:
        token.touch(0o600)
        token.write_text(secrets.token_hex(32))
    os.environ.update(own)
    _ask_for_tokens(ray)
    try:
        yield ray
    finally:
        with _handled_by(signal.SIG_IGN, *_ENDING):  # a half-stopped one would leave processes
            ray.shutdown()
        for name in own:
            del os.environ[name]
        _ask_for_tokens(ray)


def _ask_for_tokens(ray: ModuleType) -> None:
    """As the environment says now; Ray would remember what it said, and the token that it found."""
    ray._raylet.Config.initialize("")
    ray._raylet.AuthenticationTokenLoader.instance().reset_cache()


@contextlib.contextmanager
def _undisturbed() -> Iterator[None]:
    """Ray starts whole, or not at all: a half-started one would leave processes behind. Signals
    wait; that a terminal is closed is nothing to what is started meanwhile, which has to save.

    Processes of trials look for modules where this Python does. Ray would have them look first in
    the working folder, where a file may be called torch.py.
    """
    from ray._private import utils
    from ray.job_config import JobConfig

    came: list[int] = []
    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGHUP})
    try:
        with (
            _handled_by(lambda number, _: came.append(number), *_ENDING),
            _replaced(utils, set_sigterm_handler=lambda _: None),
            _replaced(JobConfig, _runtime_env_has_working_dir=lambda _: True),
        ):
            yield
    except Exception:
        if not came:  # else it may have come of that
            raise
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
    if came:
        raise KeyboardInterrupt


@contextlib.contextmanager
def _on_loopback() -> Iterator[None]:
    """A Ray that is started meanwhile listens on the loopback interface alone.

    That is what Ray does by itself on macOS and Windows, which it knows as no machines of a
    cluster. An address of 127.0.0.1 that it is given it replaces by the machine's own.
    """
    from ray._private import ray_constants

    # as its environment was when it was imported
    with _replaced(ray_constants, ENABLE_RAY_CLUSTER=False):
        yield


@contextlib.contextmanager
def _with_few_processes(*, dashboard: bool) -> Iterator[None]:
    """A Ray that is started meanwhile has neither an autoscaler, as no machine can be added, nor a
    process that reads logs, as nobody asks for them: seconds of CPU before the first trial.

    Without a dashboard Ray would still start its process and wait for it, for statistics of usage
    that are off. Its agent, which takes jobs from whoever comes with the token, cannot be left out,
    but listens nowhere where libraries that it needs seem to lack.
    """
    from ray._private import node, parameter, utils

    def with_minimal_agent(*args: Any, **kwargs: Any) -> None:
        with _replaced(utils, get_dashboard_dependency_error=ImportError):
            start(*args, **kwargs)

    few = functools.partial(
        parameter.RayParams,
        no_monitor=True,
        include_log_monitor=False,
        session_name=f"session_0_{os.getpid()}",  # short, for the sake of its sockets' paths
    )
    start = node.Node.start_raylet
    changed: dict[str, Any] = {"start_raylet": with_minimal_agent}
    if not dashboard:
        changed["start_api_server"] = lambda *_, **__: None
    with _replaced(parameter, RayParams=few), _replaced(node.Node, **changed):
        yield


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


_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextlib.contextmanager
def _terminable() -> Iterator[None]:
    """SIGTERM and SIGHUP raise KeyboardInterrupt."""
    with _handled_by(_interrupt, signal.SIGTERM, signal.SIGHUP):
        yield


def _interrupt(number: int, _: object) -> None:
    if number == signal.SIGHUP:  # a terminal that closes says so twice, but once is enough
        signal.signal(number, signal.SIG_IGN)
    raise KeyboardInterrupt


@contextlib.contextmanager
def _handled_by(handler: Any, *numbers: int) -> Iterator[None]:
    """Another handler of these signals for a while; those that are ignored (nohup) stay so."""
    import threading

    if threading.current_thread() is not threading.main_thread():
        numbers = ()
    handled = [number for number in numbers if signal.getsignal(number) is not signal.SIG_IGN]
    previous = {number: signal.signal(number, handler) for number in handled}
    try:
        yield
    finally:
        for number, before in previous.items():
            signal.signal(number, before)

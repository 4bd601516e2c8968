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
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from clsweep.cluster import ENVIRONMENT, on_one_machine
from clsweep.display.printing import say
from clsweep.errors import RequestError
from clsweep.machine import here, living, num_cores

if TYPE_CHECKING:
    from ray.tune.execution.tune_controller import TuneController
    from ray.tune.experiment import Trial

TOKEN_FILE = Path("~/.ray/auth_token")  # where Ray looks for the token of a cluster
PREFIX = "clsweep-ray-"  # of the folder that a local Ray has for itself
OWNER = "owner"  # in each temporary folder of a run: whose it is, see `owner`
# of where it is: names of sockets may have 103 bytes on macOS, a few more on Linux
_LONGEST = 103 - len(f"/{PREFIX}12345678/ray/session_0_4194304/sockets/dash_MetricsHead")
_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class RayLostError(Exception):
    """Ray is gone in part, or did not come; then with the folder that it had."""

    def __init__(self, text: str, folder: str = ""):
        super().__init__(text)
        self.folder = folder


@contextlib.contextmanager
def ray_session(address: str, *, dashboard: bool) -> Iterator[str | None]:
    """Ray for the time of a run; left alone if it was already initialised. Its folder, if this run
    has it for itself. The dashboard's process is what cleans up after worker groups.

    Meanwhile SIGTERM, and a terminal that closes, end the run as Ctrl-C does.
    """
    token = os.path.expanduser(TOKEN_FILE)
    for place in (os.path.dirname(token), token):
        _keep_private(Path(place))
    loaded = sys.modules.get("ray")
    if loaded and loaded.is_initialized():
        session: contextlib.AbstractContextManager[str | None] = contextlib.nullcontext()
    else:
        session = _started(dashboard=dashboard) if address == "local" else _joined(address)
    with (
        _handled_by(_interrupt, signal.SIGTERM, signal.SIGHUP),
        session as folder,
        _plain_tune(is_local=folder is not None),
        _patient(),
        _forgetful(),
    ):
        yield folder


@contextlib.contextmanager
def _started(*, dashboard: bool) -> Iterator[str]:
    """A Ray of our own, which nobody else can talk to. Its folder."""
    say("Starting Ray ...")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        probe.listen()
        port = probe.getsockname()[1]
        try:
            socket.create_connection(probe.getsockname(), _PATIENCE_S).close()
        except OSError as error:  # Ray itself would wait for minutes
            expected = (
                "expected a loopback interface that is up, through which Ray's processes talk"
            )
            raise RequestError(f"127.0.0.1: {expected}, given: {error.strerror or error}") from None
    with (
        _private_folder() as folder,
        on_one_machine(
            TMPDIR=folder,
            RAY_AUTH_MODE="token",
            RAY_AUTH_TOKEN_PATH=f"{folder}/token",
            # Who cleans up after a worker group asks the dashboard whether its controller lives.
            # By itself it would take that of any other Ray that the machine has, or had.
            RAY_API_SERVER_ADDRESS=f"http://127.0.0.1:{port}",
        ),
        _silent_ray(),
    ):
        try:
            with _small(dashboard=dashboard):
                _init(
                    "local",
                    num_cpus=num_cores(),  # Ray itself takes no notice of a pinned process
                    include_dashboard=dashboard,
                    dashboard_port=port,
                    # Objects are small: rows and contexts.
                    object_store_memory=2**28,
                    # Nor does anybody ask for statistics, or for a history of the tasks: each trial
                    # would stay in it.
                    _system_config={
                        "enable_metrics_collection": False,
                        "task_events_report_interval_ms": 0,  # never
                    },
                    _temp_dir=f"{folder}/ray",  # which Ray opens to everybody
                )
        except Exception as error:  # of any class
            reason = str(error).strip().partition("\n")[0]
            raise RayLostError(f"Ray does not start on this machine: {reason}", folder) from error
        yield folder


@contextlib.contextmanager
def _joined(address: str) -> Iterator[None]:
    """A Ray that others have started."""
    say(f"Joining Ray at {address} ...")
    if os.path.exists(os.path.expanduser(TOKEN_FILE)):
        # a client of a named cluster must say so, before Ray is loaded
        os.environ.setdefault("RAY_AUTH_MODE", "token")
    with _silent_ray():
        require_answer(address)
        try:
            _init(address, runtime_env={"env_vars": ENVIRONMENT})
        except (ConnectionError, ValueError, RuntimeError) as error:
            reason = str(error).strip().partition("\n")[0]
            raise RequestError(
                f"--address {address}: no Ray cluster lets us in there: {reason}. "
                "Expected: local, auto on a machine of the cluster, or HOST:PORT of its head; with "
                f"token authentication, the cluster's token in {TOKEN_FILE}"
            ) from None
        yield


def _keep_private(place: Path) -> None:
    """Nobody else reads a file or folder of ours, though Ray may have made it for everybody."""
    with contextlib.suppress(OSError):
        status = place.lstat()
        if status.st_uid == os.getuid() and not place.is_symlink():
            place.chmod(status.st_mode & 0o700)


@contextlib.contextmanager
def _private_folder() -> Iterator[str]:
    """A folder for Ray, with a token: of its sockets some ask for none, and its logs are anybody's
    to read. It stays, as the logs may say what went wrong; `leftovers` removes it.
    """
    try:
        place = os.path.realpath(tempfile.gettempdir())
        is_fit = place.isascii() and len(place) <= _LONGEST  # as Ray takes it
        folder = tempfile.mkdtemp(prefix=PREFIX, dir=place if is_fit else "/tmp")
    except OSError:
        raise RequestError(
            f"TMPDIR={os.environ.get('TMPDIR', '')}: expected a folder that can be written to, of "
            f"at most {_LONGEST} ASCII letters, or else /tmp: Ray has its sockets there"
        ) from None
    try:
        Path(folder, OWNER).write_text(owner())
        token = Path(folder, "token")
        token.touch(0o600)
        token.write_text(secrets.token_hex(32))
        yield folder
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt) or not os.path.exists(f"{folder}/ray"):
            shutil.rmtree(folder, ignore_errors=True)
        raise


def owner() -> str:
    """This process, told apart for good: its machine, its id and its start."""
    return f"{here()} {os.getpid()} {living()[os.getpid()]}"


@contextlib.contextmanager
def _silent_ray() -> Iterator[None]:
    """Ray says nothing by itself, and is shut down in the end."""
    with _uninterrupted():  # a Ray that is half imported cannot be shut down
        import ray

    for name in ("ray", "ray.tune", "ray.train", "ray.data"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
    # The line about a dead worker, with its page of advice: the trial's failed row says what
    # happened.
    ray._private.worker._worker_logs_enabled = False
    raylet: Any = ray._raylet  # which has read the environment, and a token, if Ray was loaded
    raylet.Config.initialize("")
    raylet.AuthenticationTokenLoader.instance().reset_cache()
    try:
        yield
    finally:
        with _handled_by(signal.SIG_IGN, *_ENDING):  # a half-stopped one would leave processes
            ray.shutdown()
        raylet.AuthenticationTokenLoader.instance().reset_cache()


def _init(address: str, **options: Any) -> Any:
    """Start or join Ray. One of our own starts whole or not at all, as a half-started one would
    leave processes behind: signals wait. It takes no notice of a terminal that closes: trials have
    to save.

    They look for modules where this Python does. Ray would have them look first in the working
    folder, where a file may be called torch.py.
    """
    import ray
    from ray._private import utils
    from ray.job_config import JobConfig

    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGHUP})
    try:
        with (
            _uninterrupted() if address == "local" else contextlib.nullcontext(),
            replaced(utils, set_sigterm_handler=lambda _: None),
            replaced(JobConfig, _runtime_env_has_working_dir=lambda _: True),
        ):
            return ray.init(address, log_to_driver=False, logging_level=logging.ERROR, **options)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked)


@contextlib.contextmanager
def _uninterrupted() -> Iterator[None]:
    """Signals wait meanwhile."""
    came: list[int] = []
    try:
        with _handled_by(lambda number, _: came.append(number), *_ENDING):
            yield
    finally:
        if came:
            raise KeyboardInterrupt


@contextlib.contextmanager
def _small(*, dashboard: bool) -> Iterator[None]:
    """A Ray that is started meanwhile listens on the loopback interface alone, and has few
    processes: no autoscaler, as no machine can be added, and none that reads logs, as nobody asks
    for them. Without a dashboard Ray would start its process all the same, for statistics of usage
    that are off. The dashboard's agent, which takes jobs, has to be, but listens nowhere where
    libraries seem to lack.

    Loopback is what Ray keeps to by itself on macOS and Windows, which it knows as no machines of a
    cluster. An address of 127.0.0.1 that it is given it replaces by the machine's own.
    """
    from ray._private import node, parameter, ray_constants, utils

    def start_raylet(*args: Any, **kwargs: Any) -> None:
        with replaced(utils, get_dashboard_dependency_error=ImportError):
            start(*args, **kwargs)

    few = functools.partial(
        parameter.RayParams,
        no_monitor=True,
        include_log_monitor=False,
        session_name=f"session_0_{os.getpid()}",  # short, for the sake of its sockets' names
    )
    start, unstarted = node.Node.start_raylet, {"start_api_server": lambda *_, **__: None}
    with (
        replaced(ray_constants, ENABLE_RAY_CLUSTER=False),  # the environment is read at imports
        replaced(parameter, RayParams=few),
        replaced(node.Node, start_raylet=start_raylet, **({} if dashboard else unstarted)),
    ):
        yield


@contextlib.contextmanager
def _plain_tune(*, is_local: bool) -> Iterator[None]:
    """Tune does not count its callbacks for Ray's statistics of usage, which are off: to know them
    it loads each logger that is installed, for seconds.

    Trials of a local run have the environment of this process, as every process of its Ray. Tune
    would send them a part of it once more. Ray then starts new processes for them, beside those
    that it has ready.
    """
    from ray.air._internal import usage
    from ray.tune.execution import class_cache

    ours: dict[str, Any] = {"DEFAULT_ENV_VARS": {}, "ENV_VARS_TO_PROPAGATE": set()}
    with (
        replaced(usage, tag_callbacks=lambda *_: False),
        replaced(class_cache, **ours if is_local else {}),
    ):
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

    with replaced(controller, _maybe_reuse_cached_actor=reuse_or_wait):
        yield


@contextlib.contextmanager
def _forgetful() -> Iterator[None]:
    """Tune drops its trials as they end: it would hold all of them to the end of the study, and for
    each the calls to an actor that was no longer needed before it started.
    """
    from ray.tune.execution.tune_controller import TuneController
    from ray.tune.progress_reporter import TrialProgressCallback

    step = TuneController.step
    events = ("on_trial_result", "on_trial_complete", "on_trial_error")  # which it would print
    unprinted = dict.fromkeys(events, lambda *_, **__: None)

    def step_and_forget(tune: TuneController) -> None:
        step(tune)
        _drop_ended(tune)

    with (
        replaced(TuneController, step=step_and_forget),
        replaced(TrialProgressCallback, **unprinted),
    ):
        yield


def _drop_ended(tune: TuneController) -> None:
    """Drop Tune's trials that have ended, and calls to actors that nobody starts any more. Of
    another version of Ray, which holds them elsewhere, nothing is dropped.
    """
    try:
        ended = tune._stopped_trials | tune._failed_trials
        live = (tune._live_trials, tune._trials_to_cache)
        trials, actors = tune._trials, tune._actor_manager
        calls = actors._pending_actors_to_enqueued_actor_tasks
        unneeded = calls.keys() - actors._pending_actors_to_attrs.keys()
    except AttributeError:
        return
    if ended:  # one stays: without any, Tune reads its own files in the end
        trials[:] = [each for each in trials if not each.is_finished()] or trials[-1:]
        for place in (*live, tune._stopped_trials, tune._failed_trials):
            place -= ended
    for actor in unneeded:
        del calls[actor]


@contextlib.contextmanager
def replaced(place: ModuleType | type, **values: Any) -> Iterator[None]:
    """Other values of names of a module or a class for a while, of those that it has."""
    before = {name: getattr(place, name) for name in values if hasattr(place, name)}
    for name in before:
        setattr(place, name, values[name])
    try:
        yield
    finally:
        for name, value in before.items():
            setattr(place, name, value)


def _interrupt(number: int, _: object) -> None:
    if number == signal.SIGHUP:  # a terminal that closes says so twice
        signal.signal(number, signal.SIG_IGN)
    raise KeyboardInterrupt


@contextlib.contextmanager
def _handled_by(handler: Any, *numbers: int) -> Iterator[None]:
    """Another handler of these signals for a while; those that are ignored (nohup) stay so."""
    is_main = threading.current_thread() is threading.main_thread()  # alone may set handlers
    before = {number: signal.getsignal(number) for number in numbers if is_main}
    changed = [number for number in before if before[number] is not signal.SIG_IGN]
    try:
        for number in changed:
            signal.signal(number, handler)
        yield
    finally:
        for number in changed:
            signal.signal(number, before[number])


_PATIENCE_S = 10.0
_CLIENT = "ray://"


def require_answer(address: str) -> None:
    """Connect to the head of a named cluster, once. Where none is, Ray itself asks for minutes, and
    where something listens that says nothing for ever.

    Args:
        address: what `--address` says: HOST:PORT, ray://HOST:PORT; "auto" is the RAY_ADDRESS of
            the environment, if there is one. Of "local" and other schemes nothing is asked.

    Raises:
        RequestError: it is no address, or no Ray answers there within `PATIENCE_S`.
    """
    target = os.environ.get("RAY_ADDRESS", address) if address == "auto" else address
    place = target.removeprefix(_CLIENT)
    if place in ("local", "auto") or "://" in place:
        return
    host, _, port = place.rpartition(":")
    if not host or not port.isdecimal() or not 0 < int(port[:6]) < 2**16:
        reason = f"expected HOST:PORT, given {place:.80}"
    else:
        import grpc
        from ray._private.grpc_utils import init_grpc_channel
        from ray._private.services import resolve_ip_for_localhost

        at = place if target.startswith(_CLIENT) else f"{resolve_ip_for_localhost(host)}:{port}"
        channel = init_grpc_channel(at, [("grpc.enable_http_proxy", 0)])
        try:
            grpc.channel_ready_future(channel).result(timeout=_PATIENCE_S)
            return
        except grpc.FutureTimeoutError:
            reason = f"no Ray answers at {at:.80} within {_PATIENCE_S:.0f} s"
        finally:
            channel.close()
    raise RequestError(
        f"--address {address:.80}: {reason}. Expected: local, auto on a machine of the cluster, or "
        "HOST:PORT of its head"
    )

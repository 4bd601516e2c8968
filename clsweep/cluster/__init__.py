"""Where the trials run: the only importer of Ray. Importing this package settles Ray's environment,
before Ray.
"""

from __future__ import annotations

import contextlib
import os
import re
import sys
from collections.abc import Iterator

# Read by Ray when it is imported or started, whatever the user has set.
ENVIRONMENT = {
    # One view of the progress is enough: clsweep's own.
    "RAY_AIR_NEW_OUTPUT": "0",
    "TUNE_PRINT_ALL_TRIAL_ERRORS": "0",
    "TUNE_DISABLE_AUTO_CALLBACK_LOGGERS": "1",
    "TUNE_WARN_THRESHOLD_S": "1e9",
    # What asks for no GPU sees none. By default it sees all of them, and torch would take one.
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "1",
    "RAY_TRAIN_ENABLE_CONTROLLER_STRUCTURED_LOGGING": "0",
    "RAY_TRAIN_ENABLE_WORKER_STRUCTURED_LOGGING": "0",
    "RAY_TRAIN_ENABLE_PRINT_PATCH": "0",
    "RAY_USAGE_STATS_ENABLED": "0",
    # Results are Parquet parts; nothing is ever read back from Tune's own snapshots.
    "TUNE_GLOBAL_CHECKPOINT_S": "3600",
    # Ctrl-C reaches us as KeyboardInterrupt at once; Tune would first wait for the running trials.
    "TUNE_DISABLE_SIGINT_HANDLER": "1",
    # Relative paths of a study mean the folder in which the command was typed.
    "RAY_CHDIR_TO_TRIAL_DIR": "0",
    # What the trials are written for.
    "RAY_TRAIN_V2_ENABLED": "1",
    # The default of 2 s blocks every report for 1.8 s.
    "RAY_TRAIN_HEALTH_CHECK_INTERVAL_S": "0.2",
    # What never fits is refused before; what waits for its turn, or for machines to come, has not
    # failed.
    "RAY_TRAIN_WORKER_GROUP_START_TIMEOUT_S": "1e9",
    "RAY_TRAIN_ENABLE_PREEMPTION_WATCHER": "0",
    # By default a task that memory does not suffice for is tried for ever.
    "RAY_task_oom_retries": "3",
    "RAY_TRAIN_METRICS_ENABLED": "0",
}
os.environ.update(ENVIRONMENT)
if os.path.expanduser("~") == "~":  # of a user whom the system does not know; Ray asks for it
    os.environ["HOME"] = "/"

_LOOPBACK = "lo0" if sys.platform == "darwin" else "lo"
# Of the processes of a local run: nobody on another machine has business with them.
_ON_ONE_MACHINE = {
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",  # see `_small` in ray_session.py
    # An exporter of metrics that nobody reads, and that asks for no token. No port has such a
    # number: Ray logs that and goes on, as where another Ray has the port.
    "DASHBOARD_METRIC_PORT": "-1",
    "PYTHONOPTIMIZE": "",  # Ray's processes need docstrings, and warn
    "PYTHONWARNINGS": "",
    "PYTHONSAFEPATH": "1",  # a torch.py in the working folder is not torch
    # Worker groups
    "GLOO_SOCKET_IFNAME": _LOOPBACK,
    "NCCL_SOCKET_IFNAME": _LOOPBACK,
}
# What a user may set, as Ray can read it: at other values it ends itself.
_OF_USERS = re.compile(
    r"RAY_(memory_usage_threshold=0\.[0-9]{1,9}|memory_monitor_refresh_ms=[0-9]{1,9}"
    r"|worker_niceness=[0-9]{1,2})"
)


@contextlib.contextmanager
def on_one_machine(**further: str) -> Iterator[None]:
    """The environment of a local run, for this process and those that it starts. What else is set
    of Ray is meant for another one: addresses, tokens, ways of other versions.
    """
    before, own = dict(os.environ), {**ENVIRONMENT, **_ON_ONE_MACHINE, **further}
    others = {
        name
        for name, value in before.items()
        if name.startswith(("RAY_", "TUNE_", "VIRTUAL_ENV"))  # it wants no folder in the last
        and not _OF_USERS.fullmatch(f"{name}={value}")
    }
    for name in others:
        del os.environ[name]
    os.environ.update(own)
    try:
        yield
    finally:
        for name in own:
            os.environ.pop(name, None)
        os.environ.update({name: before[name] for name in before.keys() & (others | own.keys())})

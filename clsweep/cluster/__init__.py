"""Where the trials run: the only importer of Ray. Importing this package settles Ray's environment,
before Ray.
"""

import os

# Read by Ray when it is imported or started. Values that the user has set stay.
ENVIRONMENT = {
    # One view of the progress is enough: clsweep's own.
    "RAY_AIR_NEW_OUTPUT": "0",
    "TUNE_PRINT_ALL_TRIAL_ERRORS": "0",
    "TUNE_DISABLE_AUTO_CALLBACK_LOGGERS": "1",
    "TUNE_WARN_THRESHOLD_S": "1e9",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
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
for _name, _value in ENVIRONMENT.items():
    os.environ.setdefault(_name, _value)

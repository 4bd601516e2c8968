#!/usr/bin/env bash
# trackio 0.43.0: a killed run reads as a finished one, and a run that logged nothing leaves nothing.
#
# Guess:     a tracker with the calls of wandb records how a run ended: finished, failed or killed. The
#            configuration is stored by `init`, which prints "Created new run".
# Behaviour: `finish` sends what waits, and writes no end: no table has a column for one. A run killed
#            with SIGKILL, one that raised and one that finished have the same kinds of rows. The
#            configuration travels with the first metrics: without them no row of the run is written,
#            and `resume="must"` finds no such run.
# Where it meets this field: trials that die in their first step (out of memory, a bad combination) are
#            the ones that one looks for after a sweep. They are missing, and a trial killed at a
#            tenth of its epochs is averaged with the complete ones.
# Source:    trackio/run.py (`finish`, `_attach_run_config`), trackio/sqlite_storage.py (its tables).
#            Way out: log a first metric after `init` and a mark of one's own as the last.
# Seen:      finished, raised and killed: 3 metrics and 1 configuration each; silent: 0 and 0.
#
# Installs trackio into a temporary folder; fails if this changes.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet --disable-pip-version-check trackio==0.43.0
export TRACKIO_DIR="$work/runs" HF_HUB_OFFLINE=1 HF_HUB_DISABLE_TELEMETRY=1
cat >"$work/train.py" <<'PY'
import sys
import threading

import trackio

name, resume = sys.argv[1:]
trackio.init(project="sweep", name=name, config={"lr": 0.1}, resume=resume)
if name != "silent":
    for step in range(3):
        trackio.log({"loss": 1 / (step + 1)})
if name == "raised":
    raise ArithmeticError("the loss is not finite")
if name == "killed":
    threading.Event().wait(120)  # until killed
trackio.finish()
PY
cat >"$work/look.py" <<'PY'
import os
import sqlite3
import subprocess
import sys
import time

folder, script = os.environ["TRACKIO_DIR"], sys.argv[1]


def start(name, resume="never"):
    command = [sys.executable, script, name, resume]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def rows(name):
    """Table -> its number of rows of this run."""
    connection = sqlite3.connect(f"file:{folder}/sweep.db?mode=ro", uri=True)
    names = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
    counts = {}
    for (table,) in names:
        columns = {column[1] for column in connection.execute(f"PRAGMA table_info({table})")}
        if "run_name" in columns:
            query = f"SELECT count(*) FROM {table} WHERE run_name = ?"
            counts[table] = connection.execute(query, (name,)).fetchone()[0]
    connection.close()
    return {table: count for table, count in counts.items() if count}


first = start("finished")
first.communicate()
assert first.returncode == 0
killed, deadline = start("killed"), time.monotonic() + 60
while rows("killed") != rows("finished") and time.monotonic() < deadline:
    time.sleep(0.1)
killed.kill()
killed.communicate()
assert killed.returncode == -9
raised = start("raised")
raised.communicate()
assert raised.returncode == 1
silent = start("silent")
output, _ = silent.communicate()
assert silent.returncode == 0 and "Created new run: silent" in output
for name in ("finished", "raised", "killed", "silent"):
    print(f"{name}: {rows(name)}")
assert rows("finished") == {"metrics": 3, "configs": 1}, "changed: an end is recorded"
assert rows("killed") == rows("raised") == rows("finished"), "changed: ends differ"
assert rows("silent") == {}, "changed: a run without metrics is recorded"
again = start("silent", "must")
output, _ = again.communicate()
print("silent again, resume=must:", output.strip().splitlines()[-1])
assert again.returncode == 1 and "does not exist" in output, "changed: it can be resumed"
print("as described")
PY
"$work/venv/bin/python" "$work/look.py" "$work/train.py"

#!/usr/bin/env bash
# MLflow 3.17.2: a client that only reads a database of an earlier MLflow migrates it, unasked.
#
# Guess:     an out-of-date schema is refused, as MLflow's own message has it: "Take a backup of your
#            database, then run 'mlflow db upgrade'". Reading changes nothing.
# Behaviour: `MlflowClient(tracking_uri="sqlite:///...").search_runs(...)` brings the file to the
#            newest schema. The MLflow that wrote it cannot open it any more.
#            A database that lacks a table which later versions added counts as a fresh one, so it is
#            initialised: all migrations run. The check of its schema comes after that.
# Where it meets this field: a group's studies stand in one database for years. One notebook with a
#            newer MLflow that looks at them locks out every machine that still trains.
# Source:    mlflow/store/tracking/sqlalchemy_store.py (`SqlAlchemyStore.__init__`) and
#            mlflow/store/db/utils.py (`_all_tables_exist`, `_initialize_tables`, `_verify_schema`).
#            Way out: read a copy, or the tables themselves through `file:...?mode=ro`.
# Seen:      revision 4465047574b1 before, dc11669786a5 after; 2.16.2: "Can't locate revision".
#
# Installs two MLflow into a temporary folder; fails if the behaviour changes.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export MLFLOW_DISABLE_TELEMETRY=true
install() {
    python3 -m venv "$work/$1"
    "$work/$1/bin/pip" install --quiet --disable-pip-version-check "${@:2}" alembic==1.20.1
}
install old mlflow-skinny==2.16.2 sqlalchemy==2.0.58 'setuptools<81'
install new mlflow-skinny==3.17.2 sqlalchemy==2.1.9
revision() {
    python3 -c "import sqlite3, sys
print(sqlite3.connect(sys.argv[1]).execute('SELECT version_num FROM alembic_version').fetchone()[0])" "$work/runs.db"
}
cat >"$work/write.py" <<'PY'
import sys

from mlflow.tracking import MlflowClient

client = MlflowClient(tracking_uri=f"sqlite:///{sys.argv[1]}")
client.create_run("0")
PY
cat >"$work/read.py" <<'PY'
import sys

from mlflow.tracking import MlflowClient

print(len(MlflowClient(tracking_uri=f"sqlite:///{sys.argv[1]}").search_runs(["0"])), "run")
PY
"$work/old/bin/python" "$work/write.py" "$work/runs.db" 2>/dev/null
before=$(revision)
"$work/new/bin/python" "$work/read.py" "$work/runs.db" 2>/dev/null
after=$(revision)
echo "mlflow 2.16.2 wrote revision $before; once 3.17.2 has read it: $after"
[ "$before" != "$after" ] || { echo "changed: reading leaves the schema as it is"; exit 1; }
again=$("$work/old/bin/python" "$work/read.py" "$work/runs.db" 2>&1 || true)
echo "mlflow 2.16.2 then: ${again##*$'\n'}"
[[ $again == *"locate revision"* ]] || { echo "changed: the earlier one still reads it"; exit 1; }
echo "as described"

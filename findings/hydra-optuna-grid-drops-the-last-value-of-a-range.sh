#!/usr/bin/env bash
# hydra-optuna-sweeper 1.3.0 (Hydra 1.3.8, Optuna 2.10.1): a `range(...)` is three different sets.
#
# Guess:     `range(0,5,2)` means 0, 2, 4 to every sweeper: its end is left out, as in Python. A
#            grid over ranges runs the same jobs with Optuna's grid as with Hydra's own sweeper.
# Behaviour: the plug-in turns a range into a distribution that its end belongs to. The default
#            sampler (TPE) so draws the end, where a step meets it. The grid takes as many points as
#            steps fit, one less than there are: it leaves out the end, and the last true value too
#            where no step meets the end, or where the division of floats is one short (0.3 // 0.1
#            is 2). No warning.
# Where it meets this field: seeds and learning rates are swept as ranges. A grid of three seeds has
#            two, a table has fewer cells than its command says, and TPE tries a rate outside.
# Source:    hydra_plugins/hydra_optuna_sweeper/_impl.py (`_to_grid_sampler_choices`,
#            `create_optuna_distribution_from_override`). Way out: `choice(...)` or
#            `shuffle(range(...))`, which stay lists.
# Seen:      seed=range(0,5,2), lr=range(0,0.3,0.1): Hydra's sweeper 9 jobs; Optuna's grid 4 (no
#            seed 4, no lr 0.2); TPE lr 0.3 as well. seed=range(0,2): grid 0 1, TPE 0 1 2.
#
# Installs the three into a temporary folder; fails if this changes.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet --disable-pip-version-check hydra-core==1.3.8 \
    hydra-optuna-sweeper==1.3.0 optuna==2.10.1 sqlalchemy==1.4.54 alembic==1.12.1 numpy==2.4.6
cat >"$work/job.py" <<'PY'
import hydra


@hydra.main(version_base="1.3", config_path=None)
def train(config):
    with open("jobs.txt", "a") as jobs:
        jobs.write(f"{config.seed} {config.lr}\n")
    return 0.0


train()
PY
cd "$work"
jobs() {  # the jobs of a sweep: their number, seeds and learning rates
    rm -f jobs.txt
    "$work/venv/bin/python" job.py --multirun "$@" >log.txt 2>&1 || { cat log.txt >&2; exit 1; }
    local number seeds rates
    number=$(sort -u jobs.txt | wc -l)
    seeds=$(cut -d' ' -f1 jobs.txt | sort -gu | xargs)
    rates=$(cut -d' ' -f2 jobs.txt | sort -gu | xargs)
    echo "$number jobs, seeds $seeds, rates $rates"
}
optuna=(hydra/sweeper=optuna hydra.sweeper.n_trials=40 hydra.sweeper.n_jobs=1)
grid=("${optuna[@]}" hydra/sweeper/sampler=grid)
tpe=("${optuna[@]}" hydra.sweeper.sampler.seed=0)
check() {  # name, expected, seen
    echo "$1: $3"
    [ "$2" = "$3" ] || { echo "changed: it was $2"; exit 1; }
}
ranges=('+seed=range(0,5,2)' '+lr=range(0,0.3,0.1)')
lists=('+seed=shuffle(range(0,5,2))' '+lr=choice(0.0,0.1,0.2)')
all="9 jobs, seeds 0 2 4, rates 0.0 0.1 0.2"
check "Hydra's own sweeper" "$all" "$(jobs "${ranges[@]}")"
check "Optuna's grid" "4 jobs, seeds 0 2, rates 0.0 0.1" "$(jobs "${ranges[@]}" "${grid[@]}")"
check "Optuna's grid of lists" "$all" "$(jobs "${lists[@]}" "${grid[@]}")"
drawn=$(jobs "${ranges[@]}" "${tpe[@]}")
check "TPE" "seeds 0 2 4, rates 0.0 0.1 0.2 0.3" "${drawn#*, }"
short=('+seed=range(0,2)' '+lr=0.1')
check "Optuna's grid, range(0,2)" "2 jobs, seeds 0 1, rates 0.1" "$(jobs "${short[@]}" "${grid[@]}")"
check "TPE, range(0,2)" "3 jobs, seeds 0 1 2, rates 0.1" "$(jobs "${short[@]}" "${tpe[@]}")"
echo "as described"

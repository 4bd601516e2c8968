"""Everything that this version computes, at full precision, compared with another version's.

    python tests/golden.py HEAD~3            # what differs between that commit and the files here
    python tests/golden.py HEAD~3 tau        # of the folders and sweeps whose name contains a word

Both versions compute: of every folder of docs/results and of planted sweeps the tables, the report
and what the commands print; the scores of one trial of every framework. So nothing depends on the
machine, and a change that keeps the numbers shows that it does. The exit code is 1 if any differ.
"""

from __future__ import annotations

import contextlib
import difflib
import functools
import io
import itertools
import json
import os
import re
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd

ROOT = Path(__file__).parents[1]
STATISTICS = [
    "robustness", "sensitivity", "compare", "tolerance", "marginals", "best_of_k", "tuning_cost",
    "recommend", "pareto", "leaderboard", "top", "history", "importance", "saved", "learning",
    "health", "failure_regions", "mechanism", "links", "picks", "reproduce", "optimum", "optima",
]  # fmt: skip
COMMANDS = [
    ["status"], ["reproduce"], ["compare", "--stat", "std", "--wide"],
    *[[name] for name in ("robustness", "sensitivity", "compare", "recommend", "picks", "pareto")],
    *[[name, "--wide", "--explain"] for name in ("robustness", "sensitivity", "compare", "picks")],
    ["robustness", "--format", "csv"], ["compare", "--format", "md"],
]  # fmt: skip
TAUS = {"tau": [0.02, 0.05, 0.1, 0.2, 0.5, 1.0]}
BOX = {"tau": (0.0, 1.0), "decay": (0.0, 1.0)}
# What a run takes, or when: of no interest, and never twice the same.
CHANGING = re.compile(r"_s$|_at$|_gib$|^device$")


def main() -> int:
    base, *words = sys.argv[1:]
    with tempfile.TemporaryDirectory() as scratch, _checked_out(base) as other:
        found = [Path(scratch) / "before", Path(scratch) / "now"]
        runs = [_computing(*each, words) for each in zip((other, ROOT), found, strict=True)]
        if max([run.wait() for run in runs]):
            return 2
        names = sorted({path.name for folder in found for path in folder.iterdir()})
        differing = [name for name in names if not _alike(*(folder / name for folder in found))]
    print(f"{len(names)} files, {len(differing)} of them differ")
    return 1 if differing else 0


@contextlib.contextmanager
def _checked_out(commit: str) -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as folder:
        git = ["git", "-C", str(ROOT), "worktree"]
        subprocess.run([*git, "add", "--quiet", "--detach", f"{folder}/base", commit], check=True)
        try:
            yield Path(folder) / "base"
        finally:
            subprocess.run([*git, "remove", "--force", f"{folder}/base"], check=True)


def _computing(version: Path, out: Path, words: Sequence[str]) -> subprocess.Popen[bytes]:
    """What the package in `version` computes, to `out`: by this file, whatever it has itself."""
    out.mkdir()
    text = "import runpy, sys; sys.argv = sys.argv[1:]; "
    text += f"runpy.run_path({__file__!r})['compute'](*sys.argv)"
    env = {**os.environ, "PYTHONPATH": str(version), "COLUMNS": "100", "NO_COLOR": "1"}
    env["OMP_NUM_THREADS"] = "1"  # the two run at once
    return subprocess.Popen([sys.executable, "-c", text, str(out), *words], cwd=version, env=env)


def _alike(one: Path, other: Path) -> bool:
    texts = [path.read_text() if path.exists() else "" for path in (one, other)]
    if texts[0] != texts[1]:
        lines = difflib.unified_diff(*(text.splitlines() for text in texts), lineterm="", n=0)
        print(f"{one.name}:", *itertools.islice(lines, 2, 8), sep="\n  ")
    return texts[0] == texts[1]


def compute(out: str, *words: str) -> None:
    """Write all results of the package that is imported to files of the folder `out`."""
    warnings.simplefilter("ignore")
    from clsweep.api import analyse, open_results

    folders = sorted(path.parent for path in Path("docs/results").glob("*/run.yaml"))
    sources = {folder.name: lambda folder=folder: open_results(str(folder)) for folder in folders}
    sources |= {name: lambda f=frame: analyse(f) for name, frame in _planted_sweeps().items()}
    for name, opened in sources.items():
        if all(word in name for word in words):
            print(f"{out}: {name}", file=sys.stderr, flush=True)
            _statistics(name, opened(), Path(out))
    for folder in folders:
        if all(word in folder.name for word in words):
            _commands(folder, Path(out))
    if not words:
        _trials(Path(out) / "frameworks")


def _statistics(name: str, results: Any, out: Path) -> None:
    asked = {each: getattr(results, each) for each in STATISTICS}
    for each in ("robustness", "tuning_cost"):
        asked[f"{each} within 2.5"] = functools.partial(asked[each], within=2.5)
    for param in results.data.params:
        for each in ("robustness", "mechanism", "compare"):
            asked[f"{each} {param}"] = lambda each=each, by=param: getattr(results, each)(by=by)
        asked[f"winners {param}"] = lambda by=param: results.winners(by)
    for stat in ("std", "within"):
        asked[f"compare {stat}"] = lambda stat=stat: results.compare(stat=stat)
    for what, ask in asked.items():
        (out / f"{name}.{what}".replace("/", "_")).write_text(_exactly(ask))
    (out / f"{name}.trials").write_text(_exactly(lambda: results.trials))
    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(io.StringIO()):
        results.report(f"{folder}/report")
        text = (Path(folder) / "report" / "report.md").read_text()
    (out / f"{name}.report").write_text(re.sub(r".*\bMade\b.*", "", text))


def _exactly(ask: Callable[[], pd.DataFrame]) -> str:
    """A table to the last digit, or why there is none."""
    from clsweep.errors import UserError

    try:
        frame = ask()
    except UserError as error:
        return f"{error}\n"
    return f"{frame.to_csv(float_format='%.17g')}{[*map(str, frame.dtypes)]}\n"


def _commands(folder: Path, out: Path) -> None:
    from typer.testing import CliRunner

    from clsweep.cli.main import app

    for name, *options in COMMANDS:
        done = CliRunner().invoke(app, [name, str(folder), *options])
        text = f"{done.exit_code}\n{done.output}\n{done.exception!r}\n"
        (out / f"{folder.name}: {name} {' '.join(options)}").write_text(text)


def _planted_sweeps() -> dict[str, pd.DataFrame]:
    import numpy as np
    import pandas as pd

    from tests.planted import planted

    def curve(s: Any) -> float:
        return float(80 - 30 * (np.log10(s["tau"]) + 1) ** 2)

    def flat(s: Any) -> float:
        return float(78 - 6 * (np.log10(s["tau"]) + 1) ** 2)

    def bent(s: Any) -> float:
        return float(80 - 20 * (s["tau"] - 0.4) ** 2 - 8 * s["decay"] + 5 * s["tau"] * s["decay"])

    def wide(s: Any) -> float:
        return float(79 - 5 * (s["tau"] - 0.5) ** 2 - 2 * s["decay"])

    def sized(s: Any) -> float:
        return curve(s) - float(s["batch_size"]) / 64

    def pair(**more: Any) -> pd.DataFrame:
        return pd.concat([planted(curve, objective="infonce", grid=TAUS, **more),
                          planted(flat, grid=TAUS, **{"seed": 1, **more})])  # fmt: skip

    def sampled(**more: Any) -> pd.DataFrame:
        return pd.concat([planted(bent, objective="infonce", ranges=BOX, **more),
                          planted(wide, ranges=BOX, **{"seed": 1, **more})])  # fmt: skip

    grid = {**TAUS, "batch_size": [32, 64, 128]}
    steep = planted(curve, objective="third", grid=TAUS, seed=2, fail=lambda s: s["tau"] > 0.6)
    lower = {"metric": "loss_end"}
    frames = {
        "grid": pair(),
        "grid of one seed": pair(num_seeds=1),
        "grid of ten seeds": pair(num_seeds=10),
        "grid, no noise": pair(noise=0.0),
        "grid, much noise": pair(noise=20.0),
        "two axes": pd.concat([planted(sized, objective="infonce", grid=grid), pair()[18:]]),
        "failures": pd.concat([pair(), steep]),
        "most failed": pair(fail=lambda s: s["tau"] > 0.08),
        "all of one failed": pd.concat([pair(), planted(flat, objective="x", grid=TAUS,
                                                        fail=lambda _: True)]),
        "gaps": pair().drop(index=[3, 4, 5]),
        "one objective": planted(curve, grid=TAUS),
        "one value": planted(curve, grid={"tau": [0.1]}, num_seeds=6),
        "categories": planted(lambda s: float(len(s["norm"])), grid={"norm": ["batch", "none"]}),
        "random": sampled(),
        "random, few": sampled(num_configs=9),
        "random, five seeds, noisy": sampled(num_configs=24, noise=20.0, num_seeds=5),
        "searched": sampled(sampler="tpe", num_seeds=2),
        "searched by gp": sampled(sampler="gp", num_configs=30, num_seeds=1),
        "seven objectives": pd.concat([planted(curve if i % 2 else flat, objective=f"o{i}",
                                               grid=TAUS, seed=i) for i in range(7)]),
        "another metric": pair(**lower).rename(columns={"loss_end": "linear_top1"}),
        "data sets": pd.concat([pair(seed=i).assign(dataset=name)
                                for i, name in enumerate(("digits", "cifar10"))]),
    }  # fmt: skip
    return {name: frame.reset_index(drop=True) for name, frame in frames.items()}


def _trials(out: Path) -> None:
    """The scores of two epochs of every framework."""
    from clsweep.catalog import COMPONENT
    from clsweep.train.loop import train_trial
    from studies.records.plain import plain_config

    told = {}
    for framework in COMPONENT["framework"]:
        given = {"framework": framework, "epochs": 2, "batch_size": 64, "precision": "fp32"}
        try:
            config = plain_config("digits", num_train=256, **given)
            result = train_trial(config, lambda _row: None)
        except Exception as error:  # the two versions may refuse alike
            result = {"error": str(error)}
        kept = {name: value for name, value in result.items()
                if isinstance(value, int | float | str) and not CHANGING.search(name)}  # fmt: skip
        told[framework] = kept
    out.write_text(json.dumps(told, indent=1, sort_keys=True))


if __name__ == "__main__":
    sys.exit(main())

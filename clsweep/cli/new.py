"""`clsweep new`: files to start from, one function for each kind."""

from __future__ import annotations

import keyword
import re
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from clsweep.catalog import COMPONENT, DATASET, DIAGNOSTIC, METRIC, PARAM
from clsweep.cli.options import argument, option
from clsweep.display.text import say
from clsweep.errors import RequestError

new = typer.Typer(help="Write files to start from.", no_args_is_help=True)


class Scheduler(StrEnum):
    """What can start the nodes of a cluster; on AWS Ray itself does, with `cluster.yaml`."""

    slurm = "slurm"
    kuberay = "kuberay"
    skypilot = "skypilot"


FILES = {
    Scheduler.slurm: "slurm.sbatch",
    Scheduler.kuberay: "kuberay.yaml",
    Scheduler.skypilot: "skypilot.yaml",
}
KINDS = (
    "loss", "regularizer", "framework", "views", "augmentation", "recipe", "encoder", "optimizer",
    "schedule", "probe", "dataset", "decoder", "metric", "diagnostic",
)  # fmt: skip
SKELETONS = Path(__file__).parent / "skeletons"
STUDY = """\
name: example
plugins: [example.py]
dataset: {dataset}
seeds: [0, 1]
{more}base: {{{encoder}width: 16, epochs: 5, batch_size: 256}}
objectives:
  plain: {{framework: simclr, loss: dcl}}
{objective}search: {{method: grid}}
"""
PLAIN = {"dataset": "{name: digits}", "encoder": "encoder: conv4, ", "more": ""}
OBJECTIVES = {  # the one with a row of each kind, beside the plain one
    "loss": "framework: simclr, loss: example, space: {example_scale: {grid: [0.5, 1, 2]}}",
    "regularizer": "framework: simclr, loss: dcl, regularizer: example",
    "framework": "framework: example, loss: dcl",
    "views": "framework: simclr, loss: dcl, views: example",
    "augmentation": "framework: simclr, loss: dcl, base: {augmentation: example}, "
    "space: {example_width: {grid: [0.125, 0.25, 0.5]}}",
    "recipe": "framework: simclr, loss: dcl, base: {recipe: example}",
    "optimizer": "framework: simclr, loss: dcl, base: {optimizer: example}",
    "schedule": "framework: simclr, loss: dcl, base: {lr_schedule: example}, "
    "space: {example_power: {grid: [1, 2, 4]}}",
    "probe": "framework: simclr, loss: dcl, base: {linear_probe: example}",
}
WITH_ROW = {  # what else a study says
    "encoder": {"encoder": "", "more": "factors: {encoder: [conv4, example]}\n"},
    "dataset": {"dataset": "{name: example}"},
    "decoder": {"dataset": "{name: example}"},
    "metric": {"more": "metric: {name: example, mode: max}\n"},
}
TEMPLATES = Path(__file__).parent / "clusters"


@new.command()
def cluster(
    scheduler: Annotated[Scheduler, typer.Argument(help="what starts the nodes")],
    out: Annotated[Path | None, option("--out FILE", "here, under its own name")] = None,
) -> None:
    """A file that runs studies on the nodes of SLURM, KubeRay or SkyPilot."""
    target = out or Path(FILES[scheduler])
    _write(target, (TEMPLATES / FILES[scheduler]).read_text(encoding="utf-8"))
    say(f"{target}: its head says how to use it, and what is yours to fill in")


def _write(target: Path, text: str) -> None:
    try:
        with target.open("x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        raise RequestError(f"{target}: exists already; name another file with --out") from None
    except OSError as error:
        raise RequestError(f"{target}: cannot be written: {error.strerror}") from None


def _command(kind: str) -> None:
    noun = "pairing of views" if kind == "views" else kind
    article = "An" if noun[0] in "aeiou" else "A"

    def write(
        name: Annotated[str, argument("NAME", "what it shall be called")],
        out: Annotated[Path, option("--out FOLDER", "here, unless another is named")] = Path(),
    ) -> None:
        if not re.fullmatch(r"[a-z][a-z0-9_]*", name) or keyword.iskeyword(name):
            raise RequestError(f"{name}: expected small letters, digits and '_', a letter first")
        components = (component for table in COMPONENT.values() for component in table)
        if name in {*PARAM, *METRIC, *DIAGNOSTIC, *DATASET, *components}:
            raise RequestError(f"{name}: the catalog has this name already; give another one")
        head = f'"""{article} {noun} of my own: `clsweep check example.py` tries it."""\n\n'
        text = head + (SKELETONS / f"{kind}.py.in").read_text(encoding="utf-8")
        own = f"  example: {{{OBJECTIVES[kind]}}}\n" if kind in OBJECTIVES else ""
        study = STUDY.format(**PLAIN | WITH_ROW.get(kind, {}), objective=own)
        camel, path = "".join(word.capitalize() for word in name.split("_")), out / name
        files = {out / f"{name}.py": text, out / f"{name}.yaml": study}
        if existing := [file for file in files if file.exists()]:
            raise RequestError(f"{existing[0]}: exists already; give another name or --out")
        for file, content in files.items():
            _write(file, content.replace("Example", camel).replace("example", name))
        say(f"{path}.py, {path}.yaml: written. Then:")
        for line in (f"check {path}.py", f"plan {path}.yaml", f"run {path}.yaml"):
            say(f"  clsweep {line}")

    new.command(kind, help=f"{article} {noun} of yours: a plug-in that works, and its study.")(
        write
    )


for _kind in KINDS:
    _command(_kind)

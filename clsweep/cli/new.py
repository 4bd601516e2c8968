"""`clsweep new`: files to start from, one command for each kind."""

from __future__ import annotations

import keyword
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

import typer
from typer.core import TyperGroup

from clsweep.catalog import COMPONENT, DATASET, DIAGNOSTIC, METRIC, PARAM
from clsweep.cli.options import argument, option
from clsweep.display.printing import say
from clsweep.errors import RequestError

# What nodes are started by, or with; on AWS Ray itself starts them, with `cluster.yaml`.
Scheduler = Literal["aws", "docker", "slurm", "kuberay", "skypilot"]
CLUSTER_FILES: Mapping[Scheduler, str] = {
    "aws": "aws.sh",
    "docker": "Dockerfile",
    "slurm": "slurm.sbatch",
    "kuberay": "kuberay.yaml",
    "skypilot": "skypilot.yaml",
}
CLUSTERS = Path(__file__).parent / "clusters"
SKELETONS = Path(__file__).parent / "skeletons"


class Skeleton(NamedTuple):
    """The study of a skeleton, where it differs from the plain one."""

    objective: str = ""  # with the new row, beside the plain one
    dataset: str = "digits"
    metric: str = ""
    plugins: str = "plugins: [example.py]\n"
    base: str = "encoder: conv4, width: 16, epochs: 5, batch_size: 256"
    plain: str = "  plain: {framework: simclr, loss: dcl}\n"


STUDY_SKELETONS = {
    "loss": Skeleton(
        "  example: {framework: simclr, loss: example, space: {example_scale: "
        "{grid: [0.5, 1, 2]}}}\n"
    ),
    "framework": Skeleton(
        "  example: {framework: example, loss: cosine, space: {example_size: "
        "{grid: [256, 1024]}}}\n"
    ),
    "metric": Skeleton(metric="metric: {name: example, mode: max}\n"),
    "dataset": Skeleton(dataset="example"),
    "trainer": Skeleton(
        "  example: {trainer: example.py:train, space: {example_width: {grid: [16, 32]}}}\n",
        plugins="",
        base="epochs: 5, batch_size: 256, lr: 0.1",
        plain="",
    ),
}
_STUDY = """\
name: example
{0.plugins}dataset: {{name: {0.dataset}}}
seeds: [0, 1]
{0.metric}base: {{{0.base}}}
objectives:
{0.plain}{0.objective}search: {{method: grid}}
"""
_OTHERS = "clsweep/catalog/rows.py says of every other part how its function is called"


class _Kinds(TyperGroup):
    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """The command of a kind; RequestError for one without, which says where to look."""
        if (command := super().get_command(ctx, cmd_name)) is None:
            known = ", ".join(self.commands)
            raise RequestError(f"new {cmd_name}: expected one of {known}; {_OTHERS}")
        return command


new = typer.Typer(cls=_Kinds, help=f"Write files to start from; {_OTHERS}.", no_args_is_help=True)


@new.command()
def cluster(
    scheduler: Annotated[Scheduler, typer.Argument(help="what nodes are started by, or with")],
    out: Annotated[Path | None, option("--out FILE", "here, under its own name")] = None,
) -> None:
    """A file for the nodes of AWS, SLURM, KubeRay or SkyPilot, or for the image of the last two."""
    target = out or Path(CLUSTER_FILES[scheduler])
    _write(target, (CLUSTERS / CLUSTER_FILES[scheduler]).read_text(encoding="utf-8"))
    say(f"{target}: its head says how to use it, and what is yours to fill in")


def _write(target: Path, text: str) -> None:
    try:
        with target.open("x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        raise RequestError(f"{target}: exists already; name another file with --out") from None
    except OSError as error:
        raise RequestError(f"{target}: cannot be written: {error.strerror}") from None


def _add_command(kind: str) -> None:
    def write(
        name: Annotated[str, argument("NAME", "what it shall be called")],
        out: Annotated[Path, option("--out FOLDER", "here, unless another is named")] = Path(),
    ) -> None:
        if not re.fullmatch(r"[a-z][a-z0-9_]*", name) or keyword.iskeyword(name):
            raise RequestError(f"{name}: expected small letters, digits and '_', a letter first")
        components = (component for table in COMPONENT.values() for component in table)
        if name in {*PARAM, *METRIC, *DIAGNOSTIC, *DATASET, *components}:
            raise RequestError(f"{name}: the catalog has this name already; give another one")
        head = f'"""A {kind} of my own: `clsweep check example.py` tries it."""\n\n'
        text = head + (SKELETONS / f"{kind}.py.in").read_text(encoding="utf-8")
        path, study = out / name, _STUDY.format(STUDY_SKELETONS[kind])
        files = {out / f"{name}.py": text, out / f"{name}.yaml": study}
        if existing := [file for file in files if file.exists()]:
            raise RequestError(f"{existing[0]}: exists already; give another name or --out")
        for file, content in files.items():
            _write(file, content.replace("example", name))
        say(f"{path}.py, {path}.yaml: written. Then:")
        for line in (f"check {path}.py", f"plan {path}.yaml", f"run {path}.yaml"):
            say(f"  clsweep {line}")

    new.command(kind, help=f"A {kind} of yours: a plug-in that works, and its study.")(write)


for _kind in STUDY_SKELETONS:
    _add_command(_kind)

"""`clsweep new`: files to start from, one function for each kind."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

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
TEMPLATES = Path(__file__).parent / "clusters"


@new.callback()
def _kinds() -> None:
    pass


@new.command()
def cluster(
    scheduler: Annotated[Scheduler, typer.Argument(help="what starts the nodes")],
    out: Annotated[
        Path | None, typer.Option("--out", metavar="FILE", help="here, under its own name")
    ] = None,
) -> None:
    """A file that runs studies on the nodes of SLURM, KubeRay or SkyPilot."""
    target = out or Path(FILES[scheduler])
    text = (TEMPLATES / FILES[scheduler]).read_text(encoding="utf-8")
    try:
        with target.open("x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        raise RequestError(f"{target}: exists already; name another file with --out") from None
    except OSError as error:
        raise RequestError(f"{target}: cannot be written: {error.strerror}") from None
    print(f"{target}: its head says how to use it, and what is yours to fill in")

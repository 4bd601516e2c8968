"""The studies that come with clsweep: found by name, `quickstart`, from any folder."""

from __future__ import annotations

import itertools
import re
from pathlib import Path

_PACKAGE = Path(__file__).parents[1]
# an installed package holds them, a checkout has them beside it
_FOLDERS = (_PACKAGE / "studies", _PACKAGE.parent / "studies")


EDITOR = "# yaml-language-server:"  # a line for an editor, at the head of a study


def shipped_studies() -> dict[str, Path]:
    """The file of each shipped study, by its name: the path without `.yaml`."""
    folder = next((folder for folder in _FOLDERS if folder.is_dir()), _PACKAGE)
    return {
        path.relative_to(folder).with_suffix("").as_posix(): path
        for path in sorted(folder.rglob("*.yaml"))
    }


def study_file(name: str | Path) -> Path:
    """The file that is meant: the user's own where there is one, else the shipped study of this
    name.
    """
    path = Path(name)
    return path if path.exists() else shipped_studies().get(path.as_posix(), path)


def question(path: Path) -> str:
    """What a study asks: the first sentence of the comment at its head."""
    lines = path.read_text(encoding="utf-8").splitlines()
    lines = [line for line in lines if not line.startswith(EDITOR)]
    head = itertools.takewhile(lambda line: line.startswith("#"), lines)
    text = " ".join(line.lstrip("# ") for line in head)
    return re.split(r"(?<!Fig\.)(?<=[.?]) ", text, maxsplit=1)[0]

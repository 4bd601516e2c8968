"""`clsweep schema`: the JSON Schema of study files, for an editor."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from clsweep.display.text import json_text, say
from clsweep.errors import RequestError
from clsweep.study.shipped import EDITOR

LINE = f"{EDITOR} $schema={{}}"


def schema(
    out: Annotated[
        Path | None, typer.Option("--out", metavar="FILE", help="write it to a file")
    ] = None,
    plugins: Annotated[
        list[str] | None,
        typer.Option("--plugin", metavar="FILE", help="with the rows of this plug-in, or several"),
    ] = None,
) -> None:
    """The JSON Schema of study files: an editor completes names, shows what they mean and marks
    mistakes.
    """
    from clsweep.catalog.plugins import activate, read_plugins
    from clsweep.study.json_schema import study_schema

    activate(read_plugins(plugins or (), Path()))
    text = json.dumps(study_schema(closed=bool(plugins)), ensure_ascii=False, separators=(",", ":"))
    if out is None:
        say(json_text(text))
        return
    try:
        out.write_text(text + "\n", encoding="utf-8")
    except OSError as error:
        raise RequestError(f"--out {out}: cannot be written: {error.strerror}") from None
    say(f"{out}: put this line at the head of a study beside it:")
    say(LINE.format(out.name))

"""Pictures that other processes draw."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from typing import Any

import psutil

from clsweep.report.figures.drawing import draw, drawn_beside, scripts

SPEC: dict[str, Any] = {
    "$schema": "https://vega.github.io/schema/vega-lite/v6.1.0.json",
    "data": {"values": [{"x": 1, "y": 2}, {"x": 3, "y": 1, "é": "“,\n”"}]},
    "mark": "line",
    "encoding": {"x": {"field": "x", "type": "quantitative"}, "y": {"field": "y"}},
}
WIDE = {**SPEC, "title": "another"}


def drawing_processes() -> list[psutil.Process]:
    return [
        child for child in psutil.Process().children() if "drawing" in " ".join(child.cmdline())
    ]


def test_they_are_those_that_this_process_draws_and_the_processes_end() -> None:
    here = [draw(spec).result() for spec in (SPEC, WIDE)]
    assert here[0].svg.startswith("<svg")
    assert here[0].png.startswith(b"\x89PNG")
    assert not drawing_processes()
    with drawn_beside():
        asked = [draw(spec) for spec in (SPEC, WIDE)]
        assert [each.result() for each in asked] == here
        assert "window.vegaEmbed" in scripts().result()
        assert drawing_processes()
    assert not drawing_processes()


def test_a_process_that_is_killed_is_done_without() -> None:
    here = draw(SPEC).result()
    with drawn_beside():
        assert draw(SPEC).result() == here
        for process in drawing_processes():
            process.kill()
            process.wait()
        assert draw(SPEC).result() == here


def test_they_end_with_us_however_we_end() -> None:
    code = (
        "from clsweep.report.figures.drawing import draw, drawn_beside\n"
        "from tests.report.test_drawing import SPEC, drawing_processes\n"
        "with drawn_beside():\n"
        "    draw(SPEC).result()\n"
        "    waiting = [draw(SPEC) for _ in range(50)]\n"
        "    print(*(process.pid for process in drawing_processes()), flush=True)\n"
        "    input()\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout
        drawing = [psutil.Process(int(pid)) for pid in process.stdout.readline().split()]
        assert drawing
        os.kill(process.pid, signal.SIGKILL)
        gone, alive = psutil.wait_procs(drawing, timeout=60)
    assert len(gone) == len(drawing)
    assert not alive

"""What no study needs is refused at once, with its place, its number and the limit."""

from __future__ import annotations

import os
import resource
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from clsweep.errors import StudyError
from clsweep.study import design
from clsweep.study.resolve import load_study

STUDY = """\
name: large
dataset: {name: digits, val_fraction: 0.2}
seeds: [0, 1]
base: {encoder: conv4, epochs: 1, batch_size: 32}
space:
  tau: {low: 0.1, high: 0.9, grid: [0.1, 0.2]}
objectives:
  a: {framework: simclr, loss: infonce}
search: {method: grid}
"""
THOUSAND = "{grid: [" + ", ".join(f"{i / 2000 + 0.1:.4f}" for i in range(1000)) + "]}"
LONG = "a" * 100_000
Refuse = Callable[..., str]


@pytest.fixture(autouse=True)
def at_once():
    """Seconds of this process, and no memory to speak of."""
    begin, memory = time.process_time(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    yield
    assert time.process_time() - begin < 5
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - memory < 500_000  # KiB


@pytest.fixture
def refuse(tmp_path):
    """The message on a study in which texts are replaced; without its folder."""

    def message(*changes: tuple[str, str], settings: tuple[str, ...] = ()) -> str:
        text = STUDY
        for old, new in changes:
            assert old in text
            text = text.replace(old, new)
        path = tmp_path / "study.yaml"
        path.write_text(text)
        with pytest.raises(StudyError) as caught:
            load_study(path, settings=settings)
        return str(caught.value).replace(f"{tmp_path}/", "")

    return message


# The number of trials.


@pytest.mark.parametrize(
    ("changes", "place", "counts"),
    [
        (
            [("{low: 0.1, high: 0.9, grid: [0.1, 0.2]}", THOUSAND + f"\n  lr: {THOUSAND}\n"
              f"  weight_decay: {THOUSAND}")],
            "study.yaml:11: search",
            "given 2,000,000,000: 2 seeds of 1,000,000,000 configurations, 1,000,000,000 of 'a'",
        ),
        (
            [("{method: grid}", "{method: qmc, trials_per_objective: 10000000}")],
            "study.yaml:9: search",
            "given 20,000,000: 2 seeds of 10,000,000 configurations",
        ),
        (
            [("{method: grid}", "{method: qmc, trials_per_objective: 499000}\n"
              f"confirm: {{top: 1000000000000, seeds: {[*range(10, 20)]}}}")],
            "study.yaml:10: confirm",
            "given 4,990,000: 10 seeds of 499,000 configurations",
        ),
    ],
    ids=["grid", "qmc", "confirm"],
)  # fmt: skip
def test_too_many_trials_are_counted_and_not_drawn(refuse, changes, place, counts):
    message = refuse(*changes)
    assert message.startswith(f"{place}: expected at most 1,000,000 trials, {counts}")
    assert "draw fewer configurations with method qmc" in message


def test_a_range_with_too_few_values_is_not_drawn_from_for_ever(tmp_path, monkeypatch):
    monkeypatch.setattr(design, "MAX_REPEATS", 500)
    path = tmp_path / "study.yaml"
    path.write_text(
        STUDY.replace("0.9, grid: [0.1, 0.2]", "0.10000000000000002").replace(
            "method: grid", "method: random, trials_per_objective: 64"
        )
    )
    with pytest.raises(StudyError, match=r"trials_per_objective: expected at most \d, given 64: 5"):
        design.plan_trials(load_study(path))


# The file.


def test_a_file_of_50_mb_is_not_read(refuse):
    message = refuse(("name: large\n", "name: large\n" + "# nothing\n" * 5_000_000))
    assert message.startswith(
        "study.yaml: cannot be read: expected at most 2,000,000 bytes, given 50,000,2"
    )


@pytest.mark.parametrize("source", ["/dev/zero", "pipe"])
def test_what_has_no_end_is_no_study_file(tmp_path, source):
    path = tmp_path / "pipe" if source == "pipe" else Path(source)
    if source == "pipe":
        os.mkfifo(path)
    with pytest.raises(
        StudyError, match=f"{path}: cannot be read: expected a regular file, given a"
    ):
        load_study(path)


@pytest.mark.parametrize("nested", ["[" * 100_000 + "]" * 100_000, "{a: " * 10_000 + "}" * 10_000])
def test_what_is_nested_without_end_is_refused(refuse, nested):
    assert refuse(("epochs: 1", f"epochs: {nested}")) == (
        "study.yaml: not valid YAML: nested too deeply."
    )


@pytest.mark.parametrize(
    ("old", "new", "place"),
    [
        ("epochs: 1", "epochs: " + "1" * 10_000, "study.yaml:4: "),
        ("name: large", "name: " + LONG, "study.yaml:1: "),
        ("epochs: 1", "init: " + LONG, "study.yaml:4: "),
        ("name: digits", "root: " + LONG + ", name: imagefolder", "study.yaml:2: "),
        ("epochs: 1", "? " + LONG + "\n  : 1", "study.yaml:4: "),
    ],
)
def test_an_endless_text_is_one_line(refuse, old, new, place):
    message = refuse((old, new))
    assert message.startswith(place)
    assert len(message) < 4_100


def test_of_many_mistakes_the_first_are_listed(refuse):
    many = ", ".join(f"p{i}: 1" for i in range(100))
    assert len(refuse(("epochs: 1", f"epochs: 1, {many}")).splitlines()) == 50
    many = "".join(f"k{i}: 1\n" for i in range(100))
    assert len(refuse(("name: large\n", f"name: large\n{many}")).splitlines()) == 50


def test_too_many_objectives_are_counted(refuse):
    more = "".join(f"  o{i}: {{framework: simclr, loss: infonce}}\n" for i in range(256))
    assert refuse(("search:", f"{more}search:")) == (
        "study.yaml:7: objectives: expected at most 256 entries, given 257"
    )


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        (
            ("dataset={name: synthetic, image_size: 1000000}",),
            "expected a value <= 512, given 1000",
        ),
        (("base.batch_size=1000000000000",), "expected at most 1150, the images that digits"),
        (
            ("base.batch_size=1000000000000", "base.chunk_size=7"),
            "chunks of 7 do not make a batch of 1000000000000; nearest valid: 5, 8",
        ),
        (("resources.workers=1000000000",), "does not divide among 1000000000 workers; nearest"),
    ],
)
def test_huge_numbers_are_answered_without_counting_up_to_them(refuse, settings, said):
    assert said in refuse(settings=settings)

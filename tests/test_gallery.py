"""The measured studies below docs/results: each opens, and their page says what they hold."""

import re

import pytest
import yaml

import clsweep
from clsweep.report import first_screen
from tests.test_docs import DOCS, ROOT, of_docs

FOLDERS = sorted(path.parent for path in (DOCS / "results").glob("*/run.yaml"))


@pytest.fixture(scope="module")
def gallery():
    return of_docs("gallery")


def section(name):
    """What the page says of one study."""
    text = (DOCS / "results" / "README.md").read_text(encoding="utf-8")
    return text.split(f"\n## {name}\n")[1].split("\n## ")[0]


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda path: path.name)
def test_a_kept_study_is_whole_and_gives_its_numbers_again(gallery, folder):
    study = gallery.Kept(folder, yaml.safe_load((folder / "run.yaml").read_text(encoding="utf-8")))
    results = study.results
    assert (results.trials["status"] == "finished").all()
    assert len(results.trials) == len(results.plan)
    text = section(folder.name)
    assert study.question in text
    assert study.command in text
    lines = gallery.extra(study)
    assert lines
    assert [line for line in lines if f"- {line}\n" not in text] == []
    # What ran is what the file plans, but for the place of its images.
    path = ROOT / "studies" / f"{study.run['study']}.yaml"
    planned = clsweep.load_study(path, preset=study.run.get("preset")).plan()
    assert set(planned["trial_id"]) == set(results.plan["trial_id"])
    names = ["batch_size", "lr", "tau", "lam", "std_coeff", "cov_coeff"]
    swept = {name: "float64" for name in names if name in planned}
    cells = ["objective", "config", "seed", "epochs", *swept]
    both = [
        plan.set_index("trial_id")[cells].sort_index().astype(swept).astype(str)
        for plan in (planned, results.plan)
    ]
    assert both[0].equals(both[1])


def test_an_image_keeps_the_numbers_that_it_says(gallery):
    svg = '<path d="M0.125,2.75" fill-opacity="0.15"/><text x="1.25">0.05</text>'
    assert gallery.rounded(svg) == (
        '<path d="M0.1,2.7" fill-opacity="0.15"/><text x="1.2">0.05</text>'
    )


def test_a_kept_study_names_no_place_of_its_machine():
    for path in (DOCS / "results").rglob("*.yaml"):
        assert not re.search(r"(?m)[ \"']/\w", path.read_text(encoding="utf-8")), path


def test_the_gallery_has_every_kept_study_with_its_figures():
    assert {path.name for path in FOLDERS} == {
        path.parent.name for path in (DOCS / "gallery").glob("*/report.md")
    }
    for page in (DOCS / "gallery").glob("*/report.md"):
        text = page.read_text(encoding="utf-8")
        assert [f for f in re.findall(r"\]\((\S+)\)", text) if not (page.parent / f).exists()] == []


def test_the_gallery_is_small():
    files = [p for name in ("results", "gallery") for p in (DOCS / name).rglob("*") if p.is_file()]
    assert sum(path.stat().st_size for path in files) < 5_100_000


def test_the_quickstart_ends_as_it_is_shown():
    """The first lines and the table of a real run, where a reader is told what to expect."""
    results = clsweep.open_results(DOCS / "results" / "quickstart")
    shown = [*first_screen.answer_of(results)[0]]
    for row in results.robustness().to_dict("records"):
        levels = f"{row['mean']:.2f} {row['best_level']:.2f}"
        shown.append(f"{row['objective']} {levels} {row['best_at']}")
    for page in (ROOT / "README.md", DOCS / "tutorial.md"):
        text = " ".join(page.read_text(encoding="utf-8").split())
        assert [each for each in shown if each not in text] == []

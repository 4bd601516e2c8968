"""The page in a real browser: offline, quiet, legible at any width, and no text of it ever runs."""

import math

import pandas as pd
import pytest

import clsweep
from clsweep.report.formats.page import render_page
from tests.planted import planted
from tests.report.browser import CHROMIUM, open_browser
from tests.report.samples import evil_report, figure, report, section

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="needs a Chromium browser: none is installed"),
]

CHARTS = 'document.querySelectorAll(".chart svg").length'
RENDERED_HEROES = """new Promise((resolve) => {
  const isDrawn = () => document.querySelector(".heroes .chart svg");
  const look = () => isDrawn() ? resolve(true) : setTimeout(look, 50);
  look();
})"""
NEXT_FRAMES = (
    "new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => done(true))))"
)


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    with open_browser(tmp_path_factory.mktemp("profile")) as opened:
        yield opened


@pytest.fixture(scope="module")
def real(tmp_path_factory):
    """The page of a whole report: a grid with a region that fails, and an objective that hardly
    depends on anything.
    """
    grid = {"tau": [0.05, 0.1, 0.2, 0.4], "batch_size": [32, 64, 128]}
    steep = planted(
        lambda at: 80 - 6 * abs(math.log2(at["tau"] / 0.1)),
        objective="simclr",
        grid=grid,
        fail=lambda at: at["tau"] > 0.3,
    )
    flat = planted(lambda at: 79 - abs(math.log2(at["batch_size"] / 64)), grid=grid, seed=1)
    odd = planted(lambda _: 70.0, objective="a\x1b[31m|<b>", grid=grid, seed=2)
    analysis = clsweep.analyse(pd.concat([steep, flat, odd], ignore_index=True))
    return analysis.report(tmp_path_factory.mktemp("real"))


@pytest.fixture(scope="module")
def pages(tmp_path_factory, real):
    """A whole report, one of many figures, and one whose every text looks like markup or is very
    long.
    """
    folder = tmp_path_factory.mktemp("report")
    many = section(figures=tuple(figure(f"figure-{i}", title=f"Figure {i}") for i in range(8)))
    made = {"many": report(many), "evil": evil_report()}
    for name, one in made.items():
        (folder / f"{name}.html").write_text(render_page(one), encoding="utf-8")
    return {"real": real} | {name: folder / f"{name}.html" for name in made}


@pytest.mark.parametrize("name", ["real", "many", "evil"])
@pytest.mark.parametrize("width", [1400, 400])
@pytest.mark.parametrize("dark", [False, True])
def test_the_page_is_quiet_offline_and_no_wider_than_the_window(browser, pages, name, width, dark):
    with browser.page(pages[name], width=width, dark=dark) as page:
        page.show_all(width)
        charts = page.evaluate('document.querySelectorAll(".chart").length')
        assert page.evaluate(CHARTS) == charts
        assert charts > 10 if name == "real" else charts == (9 if name == "many" else 2)
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        assert page.complaints() == []
        assert page.requests() == [pages[name].as_uri()]
        assert page.dialogs() == []


@pytest.mark.parametrize("dark", [False, True])
def test_the_first_screen_answers_without_scrolling(browser, real, dark):
    """Question, answer, leaderboard, cost, chart and next command end above the fold."""
    with browser.page(real, width=1400, height=1000, dark=dark) as page:
        page.evaluate(RENDERED_HEROES)
        bottoms = page.evaluate(
            '[".question", ".verdict", "#table-leaderboard", ".heroes .chart svg"].map((part) => '
            "document.querySelector(part).getBoundingClientRect().bottom)"
        )
        assert all(0 < bottom <= 1000 for bottom in bottoms), bottoms


def test_a_heading_sorts_and_a_point_leads_to_its_row(browser, real):
    first = 'document.querySelector("#table-trials tbody th").textContent'
    score = 'document.querySelectorAll("#table-trials thead button")[6]'
    with browser.page(real) as page:
        page.show_all(1400)
        best = page.evaluate(first)
        page.evaluate(f"{score}.click()")
        assert page.evaluate(first) != best
        page.evaluate(f"{score}.click()")
        assert page.evaluate(f'{score}.closest("th").getAttribute("aria-sort")') == "descending"
        page.evaluate(
            'document.querySelector("#figure-trials-tau .mark-symbol a, #figure-trials-tau '
            '.mark-symbol path").dispatchEvent(new MouseEvent("click", {bubbles: true}))'
        )
        page.evaluate(NEXT_FRAMES)
        assert page.evaluate('document.querySelector("tr:target") !== null')
        assert page.complaints() == []


def test_without_javascript_the_files_are_named(browser, pages):
    with browser.page(pages["many"], script=False) as page:
        assert "figures/*.svg" in page.evaluate(
            "document.querySelector('noscript').textContent + document.body.innerText"
        )
        assert page.evaluate("document.querySelector('.chart').getBoundingClientRect().height") == 0

"""The page in a real browser: offline, quiet, legible at any width, and no text of it ever runs."""

import math
import re
import zlib

import pandas as pd
import pytest

import clsweep
from clsweep.report.formats.page import render_page
from tests.planted import planted
from tests.report.browser import CHROMIUM, RENDERED, open_browser
from tests.report.samples import evil_report, figure, report, section

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="needs a Chromium browser: none is installed"),
]

COLOURS = """[...document.querySelectorAll("h1, dt, dd, a, p, li, th, td, figcaption, summary")]
  .map((element) => {
  let behind = element;
  const clear = "rgba(0, 0, 0, 0)";
  while (behind.parentElement && getComputedStyle(behind).backgroundColor === clear)
    behind = behind.parentElement;
  return [getComputedStyle(element).color, getComputedStyle(behind).backgroundColor];
})"""
CHARTS = 'document.querySelectorAll(".chart svg").length'
WIDTHS = (
    '[...document.querySelectorAll(".chart svg")].map((svg) => svg.getBoundingClientRect().width)'
)
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
def pages(tmp_path_factory):
    """A report of many figures, and one whose every text looks like markup or is very long."""
    folder = tmp_path_factory.mktemp("report")
    many = section(figures=tuple(figure(f"figure-{i}", title=f"Figure {i}") for i in range(8)))
    made = {"many": report(many), "evil": evil_report()}
    for name, one in made.items():
        (folder / f"{name}.html").write_text(render_page(one), encoding="utf-8")
    return {name: folder / f"{name}.html" for name in made}


@pytest.mark.parametrize("name", ["many", "evil"])
@pytest.mark.parametrize("width", [1400, 400])
@pytest.mark.parametrize("dark", [False, True])
def test_the_page_is_quiet_offline_and_no_wider_than_the_window(browser, pages, name, width, dark):
    with browser.page(pages[name], width=width, dark=dark) as page:
        page.show_all(width)
        assert page.evaluate(CHARTS) == (9 if name == "many" else 2)
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        assert page.complaints() == []
        assert page.requests() == [pages[name].as_uri()]
        assert page.dialogs() == []


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


@pytest.mark.parametrize("width", [1400, 400])
@pytest.mark.parametrize("dark", [False, True])
def test_a_whole_report_is_quiet_offline_and_no_wider_than_the_window(browser, real, width, dark):
    with browser.page(real, width=width, dark=dark) as page:
        page.show_all(width)
        assert (
            page.evaluate(CHARTS)
            == page.evaluate('document.querySelectorAll(".chart").length')
            > 10
        )
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        assert page.complaints() == []
        assert page.requests() == [real.as_uri()]


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


def test_captions_of_tables_are_not_behind_a_scrollbar(tmp_path, real):
    with open_browser(tmp_path, scrollbars=True) as classic, classic.page(real, width=400) as page:
        assert page.evaluate("document.documentElement.clientWidth") < 400
        assert (
            page.evaluate(
                '[...document.querySelectorAll(".table .scroll")].filter((box) => '
                'box.querySelector("caption > span")'
                ".getBoundingClientRect().right > box.getBoundingClientRect().left + "
                "box.clientWidth + 0.5).length"
            )
            == 0
        )


@pytest.mark.parametrize("dark", [False, True])
def test_text_is_told_from_what_is_behind_it(browser, pages, dark):
    with browser.page(pages["many"], dark=dark) as page:
        pairs = {tuple(pair) for pair in page.evaluate(COLOURS)}
        assert {pair: contrast(*pair) for pair in pairs if contrast(*pair) < 4.5} == {}
        assert (
            luminance(next(iter(pairs))[1]) < 0.1 if dark else luminance(next(iter(pairs))[1]) > 0.8
        )


def test_text_is_text_in_the_tooltip_too(browser, pages):
    with browser.page(pages["evil"]) as page:
        page.show_all(1400)
        x, y = page.evaluate(
            '(() => { const b = document.querySelector(".chart .mark-symbol.role-mark '
            'path").getBoundingClientRect();'
            "return [b.x + b.width / 2, b.y + b.height / 2]; })()"
        )
        page.call("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)
        page.evaluate(NEXT_FRAMES)
        assert "<script>alert(1)" in page.evaluate(
            'document.querySelector("#vg-tooltip-element").textContent'
        )
        assert (
            page.evaluate(
                'document.querySelectorAll("#vg-tooltip-element :is(script, img)").length'
            )
            == 0
        )
        assert page.complaints() == []
        assert page.dialogs() == []


def test_charts_wait_until_they_come_near(browser, pages):
    with browser.page(pages["many"], width=400, height=500) as page:
        page.evaluate(NEXT_FRAMES)
        assert page.evaluate(CHARTS) < 9
        page.evaluate("scrollTo(0, document.body.scrollHeight)")
        page.show_all(400)
        assert page.evaluate(CHARTS) == 9


def test_charts_follow_the_colours_and_the_width_of_the_window(browser, pages):
    with browser.page(pages["many"]) as page:
        page.show_all(1400)
        wide = page.evaluate(WIDTHS)
        page.paint(dark=True)
        page.evaluate(RENDERED)
        drawn = page.evaluate(
            '[...document.querySelectorAll(".chart")].map((chart) => chart.dataset.drawn)'
        )
        assert drawn == ["dark"] * 9
        page.resize(400, 800)
        page.evaluate(NEXT_FRAMES)
        narrow = page.evaluate(WIDTHS)
        assert max(narrow) <= 400 < min(wide)


def test_printing_draws_all_charts_in_light_colours(browser, pages):
    with browser.page(pages["many"], height=300, dark=True) as page:
        before = page.evaluate(CHARTS)
        first = strokes(page.pdf())
        page.evaluate(RENDERED)  # dark again
        page.show_all(1400)
        assert before < 9
        assert first == strokes(page.pdf()) > 0


def test_without_javascript_the_files_are_named(browser, pages):
    with browser.page(pages["many"], script=False) as page:
        assert "figures/*.svg" in page.evaluate(
            "document.querySelector('noscript').textContent + document.body.innerText"
        )
        assert page.evaluate("document.querySelector('.chart').getBoundingClientRect().height") == 0


def luminance(colour):
    """Relative luminance of `rgb(r, g, b)` (WCAG 2)."""
    parts = [int(part) / 255 for part in re.findall(r"\d+", colour)[:3]]
    linear = [
        part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts
    ]
    return sum(weight * part for weight, part in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


def contrast(a, b):
    high, low = sorted((luminance(a), luminance(b)), reverse=True)
    return (high + 0.05) / (low + 0.05)


def strokes(pdf):
    """How many lines and curves are drawn in a PDF."""
    count = 0
    for stream in re.findall(rb"stream\r?\n(.*?)endstream", pdf, re.DOTALL):
        try:
            count += len(re.findall(rb"\b[lc]\n", zlib.decompress(stream)))
        except zlib.error:  # not a compressed one
            continue
    return count

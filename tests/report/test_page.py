"""The page: one file, every text escaped, everything in it that a reader and a screen reader
need.
"""

import base64
import io
import json
import re
from dataclasses import replace
from html.parser import HTMLParser

import numpy as np
import pandas as pd
import pytest

from clsweep.report.page import MAX_INSIDE, render_page
from tests.report.samples import (
    CONTROL,
    EVIL,
    LEGIBLE,
    figure,
    report,
    report_full_of,
    section,
    table,
)


class Elements(HTMLParser):
    """The elements of a page as (tag, attributes), and the text outside of scripts and styles."""

    def __init__(self, page):
        super().__init__(convert_charrefs=True)
        self.elements, self.texts, self.scripts, self.inside = [], [], [], None
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        self.inside = tag

    def handle_endtag(self, tag):
        self.inside = None

    def handle_data(self, data):
        if self.inside == "script":
            self.scripts.append(data)
        elif self.inside != "style":
            self.texts.append(data)

    def all(self, tag):
        return [attrs for name, attrs in self.elements if name == tag]


@pytest.fixture(scope="module")
def page():
    return Elements(render_page(report()))


@pytest.fixture(scope="module")
def evil():
    return Elements(render_page(report_full_of(EVIL)))


def test_the_page_asks_for_nothing_outside_of_it(page):
    outside = {"src", "srcset", "data", "action"}
    assert not [attrs for _, attrs in page.elements if outside & {*attrs}]
    assert [attrs["href"] for attrs in page.all("link")] == ["data:,"]
    policy = next(attrs["content"] for attrs in page.all("meta") if attrs.get("http-equiv"))
    assert policy.startswith("default-src 'none'; script-src 'sha256-")
    assert "unsafe-eval" not in policy
    assert policy.count("sha256-") == 2


def test_text_that_looks_like_markup_stays_text(evil):
    types = [attrs.get("type") for attrs in evil.all("script")]
    assert types == ["application/json", "application/json", None, None]
    assert not evil.all("img")
    assert sum(text.strip() == EVIL for text in evil.texts) >= 7
    assert not [name for _, attrs in evil.elements for name in attrs if name.startswith("on")]


def test_characters_that_a_page_may_not_hold_are_replaced():
    page = render_page(report_full_of(CONTROL))
    assert re.search("[\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe]", page) is None
    elements = Elements(page)
    assert sum(text.strip() == LEGIBLE for text in elements.texts) >= 7
    light = json.loads(elements.scripts[0])["light"]
    assert light["title"] == light["description"] == LEGIBLE
    assert {row["objective"] for rows in light["datasets"].values() for row in rows} == {LEGIBLE}


def test_charts_are_json_that_holds_no_tag(evil):
    specs = evil.scripts[:2]
    assert not re.search("[<>&\u2028\u2029]", "".join(specs))
    light = json.loads(specs[0])["light"]
    assert light["title"] == light["description"] == EVIL.replace("\u2028", " ")


def test_a_chart_with_a_number_that_is_not_finite_is_refused():
    chart = figure().chart.copy()
    chart.height = float("inf")
    with pytest.raises(ValueError, match="Out of range float"):
        render_page(report(section(figures=(replace(figure(), chart=chart),))))


def test_ids_are_unique_and_what_is_referred_to_is_there(page):
    ids = [attrs["id"] for _, attrs in page.elements if "id" in attrs]
    assert len(ids) == len(set(ids))
    names = ("aria-labelledby", "aria-describedby", "data-spec")
    named = {w for _, attrs in page.elements for n in names for w in attrs.get(n, "").split()}
    named |= {attrs["href"][1:] for attrs in page.all("a") if attrs["href"].startswith("#")}
    assert named <= set(ids)


def test_tables_have_headers_and_can_be_scrolled_by_keyboard(page):
    regions = [attrs for attrs in page.all("div") if attrs.get("role") == "region"]
    assert len(regions) == len(page.all("table")) == len(page.all("caption")) == 2
    assert all(attrs["tabindex"] == "0" for attrs in regions)
    assert {attrs["scope"] for attrs in page.all("th")} == {"col", "row"}
    assert page.all("html") == [{"lang": "en"}]


def test_a_long_table_stops_and_says_where_the_rest_is():
    long = section(tables=(table(objectives=[f"n{i:03}" for i in range(205)]),))
    text = " ".join("".join(Elements(render_page(report(long))).texts).split())
    assert "5 more rows in the file: CSV" in text
    assert "n199" in text
    assert "n200" not in text


def test_the_first_screen_answers_before_anything_else():
    """Question, answer, leaderboard, chart and command come before the contents, in this order."""
    more = section(id="more", title="More", tables=(), figures=())
    page = Elements(render_page(report(section(), more)))
    words = " ".join(" ".join(page.texts).split())
    order = ["Which of 2 objectives", "DCL is the most robust.", "Raw pixels reach more.",
             "Leaderboard", "clsweep confirm runs/tau", "1 question not resolved", "Hero",
             "More questions", "Who is robust?", "What do the words mean?"]  # fmt: skip
    places = [words.index(part) for part in order]
    assert places == sorted(places)
    folds = [attrs for attrs in page.all("details") if attrs.get("class") == "open"]
    assert [attrs["id"] for attrs in folds] == ["page-open"]
    assert "open" not in folds[0]  # what is not resolved is folded


def test_a_term_leads_to_its_meaning_and_shows_it_on_hover():
    part = section(sentences=("SD* of an objective, SD* again, tau=objective.",))
    links = Elements(render_page(report(part))).all("a")
    own = [a for a in links if (a.get("class"), a["href"]) == ("term", "#term-sd")]
    assert [attrs["title"] for attrs in own] == ["A spread."]  # once a text, and in no name


def test_every_table_and_chart_can_be_taken_from_the_page_alone(page):
    files = {attrs["download"]: attrs["href"] for attrs in page.all("a") if "download" in attrs}
    assert set(files) == {"leaderboard.csv", "hero.csv", "tolerance.csv", "robustness.csv"}
    start, _, data = files["robustness.csv"].partition(",")
    assert start == "data:text/csv;charset=utf-8;base64"
    table = pd.read_csv(io.BytesIO(base64.b64decode(data)))
    assert table["sd"].tolist() == [0.512345, 0.512345]


def test_a_file_too_large_for_the_page_lies_beside_it():
    large = pd.DataFrame({"x": np.arange(MAX_INSIDE, dtype=float)})
    page = Elements(render_page(report(section(tables=(replace(table(), frame=large),)))))
    assert "robustness.csv" not in {attrs.get("download") for attrs in page.all("a")}
    assert "tables/robustness.csv" in {attrs["href"] for attrs in page.all("a")}


def test_what_lies_beside_the_page_is_named_and_not_in_it():
    """A figure of which no row is resolved is a line."""
    part = section(
        tables=(table(), replace(table("trials", title="All trials"), is_apart=True)),
        figures=(
            replace(figure("leads", title="Who leads"), is_resolved=False),
            replace(figure("one", title="Of one"), is_apart=True),
        ),
    )
    page = Elements(render_page(report(part)))
    assert len(page.all("table")) == 2
    assert [attrs["id"] for attrs in page.all("figure")] == ["figure-hero"]
    words = " ".join("".join(page.texts).split())
    assert "Not drawn, as no row is resolved: Who leads." in words
    assert "Beside this page: Of one, All trials." in words
    links = [attrs["href"] for attrs in page.all("a") if "/" in attrs["href"]]
    files = ["figures/leads.svg", "figures/one.svg", "tables/trials.csv"]
    assert [place for place in links if not place.startswith("data:")][-3:] == files


def test_a_page_without_figures_has_no_script_that_draws():
    page = render_page(replace(report(section(figures=())), hero=()))
    assert len(page) < 100_000
    assert "Charts: Vega" not in "".join(Elements(page).texts)


def test_a_report_of_nothing_is_a_page():
    empty = replace(table(), shown=pd.DataFrame({"objective": []}))
    bare = replace(figure(), data=pd.DataFrame())
    nothing = section(sentences=(), notes=(), tables=(empty,), figures=(bare,))
    page = Elements(render_page(replace(report(nothing), facts={}, verdicts=())))
    assert "No rows." in "".join(page.texts)
    assert not page.all("details")

"""The words that a reader may not know, each in one or two sentences."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import cache

from clsweep.catalog import DIAGNOSTICS, METRICS
from clsweep.statistics.registry import all_statistics

# As it is written on the page -> what it means. Longer terms come before those they contain.
TERMS: Mapping[str, str] = {
    "objective": "A training objective: framework, loss, regulariser and views together.",
    "configuration": "One setting of all swept hyperparameters of an objective. It runs once a "
    "seed.",
    "configs": "Configurations: settings of all swept hyperparameters.",
    "SD*": "Spread of the metric over the swept settings, as a standard deviation, with the noise "
    "taken out. Small is robust.",
    "near the best": "Share of the swept settings that lose no more than a given distance against "
    "the objective's best setting.",
    "usable band": "The values around the best one that are shown to lose hardly anything.",
    "fresh seeds": "Seeds that took no part in picking a setting: its score on them is not too "
    "good by luck.",
    "raw pixels": "The metric on the images themselves, without any encoder.",
    "untrained": "The metric on the features of an encoder that saw no image.",
    "p Holm": "The chance of such a difference where there is none, corrected by Holm for the "
    "number of comparisons.",
    "not resolved": "It was measured, and the noise is too large to tell.",
    "not measured": "The trials cannot answer this at all; the reason stands beside it.",
    "interval": "The two numbers in brackets hold the true value in 95 % of studies.",
    "new images": "Intervals for new images hold for others like the scored ones. Those for these "
    "images hold for the scored ones alone.",
    "Spearman": "Rank correlation: 1 rises together, -1 one rises as the other falls.",
    "q_B": "Coupling of negatives and positives (DCL): near 0 an anchor hardly learns.",
}


@cache
def terms() -> Mapping[str, str]:
    """All that the page can explain."""
    return {
        **TERMS,
        **{name: meaning for each in all_statistics() for name, meaning in each.terms.items()},
        **{row.name: f"{row.doc[:1].upper()}{row.doc[1:]}." for row in METRICS},
        **{row.name: f"{row.doc[:1].upper()}{row.doc[1:]}." for row in DIAGNOSTICS},
    }


@cache
def pattern() -> re.Pattern[str]:
    """Finds a term as a word of its own, whatever its case."""
    words = sorted(terms(), key=len, reverse=True)
    return re.compile(rf"(?<![\w/=.-])(?:{'|'.join(map(re.escape, words))})(?![\w/=-])", re.I)


def term_of(piece: str) -> str:
    """The term that a piece of text is, in the glossary's own spelling."""
    return next(name for name in terms() if name.lower() == piece.lower())


def terms_in(texts: Iterable[str]) -> dict[str, str]:
    """Those of the terms that stand in any of the texts, with what they mean."""
    terms_used = {term_of(hit) for text in texts for hit in pattern().findall(text)}
    return {name: meaning for name, meaning in terms().items() if name in terms_used}

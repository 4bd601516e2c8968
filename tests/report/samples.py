"""Small reports for trying the page, the Markdown and the files."""

import altair as alt
import pandas as pd

from clsweep.report.content import Report, Section, Step
from clsweep.statistics.report_objects import Figure, Table


def figure(name="tolerance", *, title="Tolerance", rows=4, objective="dcl"):
    data = pd.DataFrame(
        {"delta": range(rows), "share": [0.25 * i for i in range(rows)], "objective": objective}
    )
    chart = (
        alt.Chart(data)
        .mark_point(size=4000, filled=True)
        .encode(
            x=alt.X("delta:Q").title(objective),
            y="share:Q",
            color=alt.Color("objective:N").title(objective).legend(orient="bottom"),
            tooltip=["objective", "share"],
        )
        .properties(width="container", height=200, title=objective)
    )
    return Figure(name=name, title=title, caption="Share of the space.", chart=chart, data=data)


def table(name="robustness", *, objectives=("simclr", "dcl"), title="Robustness"):
    size = len(objectives)
    frame = pd.DataFrame(
        {"objective": objectives, "sd": [0.512345] * size, "best_at": ["tau=0.1"] * size}
    )
    shown = pd.DataFrame(
        {"objective": objectives, "sd": ["0.51 [0.40, 0.63]"] * size, "at": ["tau=0.1"] * size}
    )
    return Table(name=name, title=title, caption="In points.", frame=frame, shown=shown)


def section(
    *,
    id="robustness",
    title="Who is robust?",
    sentences=("DCL is.",),
    notes=("3 trials failed.",),
    **parts,
):
    parts = {"tables": (table(),), "figures": (figure(),)} | parts
    return Section(id=id, title=title, sentences=sentences, notes=notes, **parts)


def report(*sections, title="A study", verdicts=("DCL is the most robust.",)):
    facts = {"Studies": "tau", "Metric": "knn_top1 (%)"}
    return Report(
        title=title,
        question="Which of 2 objectives is best? digits, 2 seeds.",
        facts=facts,
        verdicts=verdicts,
        notes=("Raw pixels reach more.",),
        board=table("leaderboard", title="Leaderboard"),
        hero=(figure("hero", title="Hero"),),
        steps=(
            Step(sentence="Run the best on fresh seeds", command="clsweep confirm runs/tau"),
            Step(sentence="Add seeds"),
        ),
        open=("Whether DCL is better is not resolved: it needs 8 seeds.",),
        terms={"SD*": "A spread.", "objective": "A training objective."},
        sections=sections or (section(),),
        sources=("runs/tau",),
    )


def report_full_of(text):
    """A report whose every text is this one, or very long."""
    parts = section(
        title=text,
        sentences=(text,),
        notes=(text,),
        tables=(table(objectives=(text, "x" * 300), title=text),),
        figures=(
            figure(title=text, objective=text),
            figure("long", title="y" * 300, objective="z" * 300),
        ),
    )
    return Report(
        title=text,
        question=text,
        facts={text: text, "long": "f" * 300},
        verdicts=(text, "v" * 300),
        notes=(text,),
        board=table("leaderboard", objectives=(text, "x" * 300), title=text),
        steps=(Step(sentence=text, command=text),),
        open=(text,),
        sections=(parts,),
        terms={"SD*": text},
    )


# What looks like markup, and characters that a terminal obeys and neither XML nor HTML may hold.
EVIL = (
    "<script>alert(1)</script><img src=x "
    "onerror=alert(2)>\"'`|[a](javascript:alert(3))</style>\u2028&lt;"
)
CONTROL = "a\x1b[31m\x00\x0b\ufffeb"
LEGIBLE = "a\ufffd[31m\ufffd\ufffd\ufffdb"

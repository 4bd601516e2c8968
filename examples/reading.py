"""The results of a study in pandas: one table for a paper and one figure, within seconds.

Run it as a script, or cell by cell in an editor that knows `# %%`. It reads the folder that it is
given, or one of this repository, and trains nothing.
"""

# %% Open a results folder. Nothing in it is executed.
import sys
from pathlib import Path

import altair as alt

import clsweep

kept = Path(__file__).resolve().parents[1] / "docs" / "results" / "tau-digits"
results = clsweep.open_results(sys.argv[1] if len(sys.argv) == 2 else kept)
metric = results.metric

# %% A row for each trial, a column for each hyperparameter and score: pandas does the rest.
trials = results.trials.query("status == 'finished'")
print(trials.groupby(["objective", "tau"])[metric].agg(["mean", "std", "count"]).round(2))

# %% Intervals are more than a standard deviation: of paired seeds, and for new images.
levels = results.marginals().query("param == 'tau'").reset_index(drop=True)
levels["cell"] = levels.apply(lambda at: f"{at['mean']:.1f} [{at.low:.1f}, {at.high:.1f}]", axis=1)

# %% The table: a temperature in each row, an objective in each column.
table = levels.pivot(index="label", columns="objective", values="cell")
print(table)
styled = table.style.format_index(escape="latex", axis="columns")
Path("levels.tex").write_text(styled.to_latex(hrules=True), encoding="utf-8")

# %% Is a difference real? `resolved` says so, corrected for everything that is compared.
print(results.compare()[["a", "b", "estimate", "low", "high", "p_holm", "resolved"]].round(3))

# %% The figure: the same numbers, as points with intervals.
base = alt.Chart(levels).encode(
    alt.X("label:N").title("tau").axis(labelAngle=0),
    alt.Color("objective:N").title(None),
    xOffset="objective:N",
)
points = base.mark_point(filled=True).encode(alt.Y("mean:Q").title(metric).scale(zero=False))
figure = points + base.mark_rule().encode(alt.Y("low:Q").title(metric), alt.Y2("high:Q"))
figure.properties(width=360, height=240).save("levels.svg")
print("written: levels.tex, levels.svg")

"""A study in Python, from its question to its report: about a minute on two cores, no download.

Run it as a script, or cell by cell in an editor that knows `# %%`. Results lie in
`results/example`: a second run reads what the first one has trained.
"""

# %% The question: does decoupling help, and at which temperature? A study is a tree of values.
from pathlib import Path

import yaml

import clsweep

question = {
    "name": "example",
    "plugins": [str(Path(__file__).resolve().with_name("own_loss.py"))],
    "dataset": {"name": "digits"},
    "metric": {"name": "linear_top1", "mode": "max"},
    "seeds": [0, 1, 2],
    "base": {
        "encoder": "conv4",
        "epochs": 5,
        "eval_every": 5,
        "batch_size": 32,
        "proj_dim": 128,
        "proj_hidden": 128,
        "lr": 0.1,
        "crop_scale": 0.5,
        "jitter_strength": 0.4,
        "flip_prob": 0,  # a mirrored digit is another sign
        "blur_prob": 0,
    },
    "space": {"tau": {"grid": [0.1, 0.5]}},
    "objectives": {
        "simclr": {"framework": "simclr", "loss": "infonce"},
        "dcl": {"framework": "simclr", "loss": "dcl"},
        "half": {"framework": "simclr", "loss": "half_decoupled", "base": {"decoupling": 0.5}},
    },
    "search": {"method": "grid"},
}
file = Path("example.yaml")
file.write_text(yaml.safe_dump(question, sort_keys=False))

# %% The plan: a row for each trial. Nothing has run yet.
study = clsweep.load_study(file)
print(study.plan()[["objective", "tau", "seed"]])

# %% Train what is left of it, on a Ray of this machine.
results = clsweep.run(study, out="results/example")

# %% The tables are pandas. A row for each trial, a column for each hyperparameter and score:
trials = results.trials
print(trials.query("objective == 'half'")[["tau", "seed", "linear_top1", "wall_time_s"]])
print(trials.groupby(["objective", "tau"])["linear_top1"].agg(["mean", "std"]).round(1))

# %% What is reached without training: the pixels themselves, and encoders as they were initialised.
print(results.references[["reference", "seed", "linear_top1"]])

# %% How much does each objective depend on the temperature? Every number has its interval.
robustness = results.robustness()
interval = ["sd_star", "sd_star_low", "sd_star_high"]
print(robustness[["objective", "best", "best_at", "best_level", *interval]].round(2))

# %% Is the own loss better than SimCLR? Where the seeds cannot tell, `resolved` is False.
difference = results.compare("half", "simclr")
print(difference[["a", "b", "estimate", "low", "high", "p", "resolved"]])

# %% Which setting to use: the best one, and one whose neighbours are good too.
recommended = results.recommend()
print(recommended[["objective", "kind", "at", "score", "low", "high"]])

# %% All of it in one page.
page = results.report("reports/example")
print(f"open {page}")

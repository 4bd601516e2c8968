"""`train_trial` from a study file to its scores, on digits: reproducible, and it reads
what it owns. That any number of workers train as one is of `tests/contracts/test_world_size.py`.
"""

import math
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import replace
from functools import partial, partialmethod
from typing import Any

import pytest
import torch

from clsweep.catalog import PARAM, SELECTED_PARTS
from clsweep.cli.check import other_values
from clsweep.data.locations import DataPlace
from clsweep.objective.build import build_encoder
from clsweep.objective.framework import Comparison
from clsweep.objective.targets import DINO
from clsweep.study.design import plan_row, plan_trials
from clsweep.study.resolve import load_study
from clsweep.train import loop, mutual_information
from clsweep.train.contracts import counts
from clsweep.train.diagnostics import StepStatistics
from clsweep.train.evaluation import score_encoder
from clsweep.train.images import on_device
from clsweep.train.loop import DivergedError, train_trial
from clsweep.train.state import Precision, new_state
from tests.contracts.attempts import unmeasured
from tests.contracts.combinations import (
    CASES,
    COMBINATIONS,
    PAIR_CASES,
    few_images,
    small_config,
    some_digits,
)

pytestmark = pytest.mark.usefixtures("one_thread")

STUDY = """
name: loop
dataset: {name: digits, val_fraction: 0.1}
seeds: [0]
base: {encoder: conv4, width: 4, epochs: 1, batch_size: 64, lr: 0.1, eval_every: 1, knn_k: 20}
objectives:
  simclr: {framework: simclr, loss: infonce}
  dcl: {framework: simclr, loss: dcl}
  dclw: {framework: simclr, loss: dclw}
  eqco: {framework: simclr, loss: eqco, base: {num_negatives: 16}}
  moco: {framework: moco, loss: infonce, base: {num_negatives: 256, momentum: 0.9}}
  byol: {framework: byol, loss: cosine, regularizer: dimcl,
         base: {proj_hidden: 32, pred_hidden: 32, proj_dim: 16}}
  moco_v3: {framework: moco_v3, loss: infonce, base: {proj_hidden: 32, pred_hidden: 32}}
search: {method: grid}
"""
NUM_TRAIN, STEPS = 260, 4  # the first digits of the training split; full batches of 64
HANDED_OVER = ("encoder", "normalisation")
METRICS = {"knn_top1", "knn_top5"}
PROBED = {"linear_top1", "linear_top5"}  # at the last epoch alone
LOOKS = {"alignment", "uniformity", "feature_diversity", "effective_rank", "std_per_dim"}
LOOKS |= {"rankme", "alpha_req", "spectrum_decay"}
LOOKS |= {
    "intra_class_distance", "inter_class_distance", "grad_norm_mean", "grad_norm_cv",
    "query_grad_norm_mean", "query_grad_norm_cv", "q_b_mean", "q_b_cv",
}  # fmt: skip

Row = dict[str, Any]


@pytest.fixture(autouse=True)
def few(monkeypatch):
    monkeypatch.setattr(loop, "load_splits", partial(few_images, num_images=NUM_TRAIN))


@pytest.fixture(scope="module")
def configs(tmp_path_factory):
    """The planned row of each objective."""
    path = tmp_path_factory.mktemp("study") / "loop.yaml"
    path.write_text(STUDY)
    study = load_study(path)
    return {trial.objective: plan_row(study, trial) for trial in plan_trials(study)}


def run(config: Mapping[str, Any], **changes: Any) -> tuple[list[Row], Row]:
    """The rows of all epochs and the result, without what only measures the machine."""
    rows: list[Row] = []
    if "batch_size" in changes:
        changes.setdefault("chunk_size", changes["batch_size"])
    result = train_trial({**config, **changes} if changes else config, rows.append)
    [left] = unmeasured([result])
    return unmeasured(rows), {n: value for n, value in left.items() if n not in HANDED_OVER}


# What a trial reports.


def test_a_row_an_epoch_and_the_last_one_is_the_result(configs):
    rows: list[Row] = []
    result = train_trial({**configs["dcl"], "epochs": 2}, rows.append)
    names = {"epoch", "train_loss", "base_loss", "lr", "time_s", "images_per_s", *METRICS, *LOOKS}
    assert [(row["epoch"], set(row)) for row in rows] == [(1, names), (2, names | PROBED)]
    names = {*METRICS, *PROBED, *LOOKS, "train_loss", "base_loss"}
    assert {name: result[name] for name in names} == {name: rows[-1][name] for name in names}
    assert result["num_images"] == 2 * STEPS * 64
    assert result["lr_peak"] == 0.1 * 64 / 256
    assert (result["pairs_per_image"], result["compute_per_image"]) == (1, 2)
    assert result["images_per_s"] == pytest.approx(
        result["num_images"] / sum(row["time_s"] for row in rows)
    )
    assert all(math.isfinite(value) for row in rows for value in row.values())
    for probe in ("knn", "linear"):
        assert 0 < result[f"{probe}_top1"] <= result[f"{probe}_top5"] <= 100


def test_side_tables_come_with_the_result(configs):
    """q_B wherever the encoder was scored, and the points of the last epoch, if asked for."""
    config = {**configs["dcl"], "epochs": 3, "eval_every": 2, "tsne_points": 12}
    result = train_trial(config, lambda _: None)
    bars = {
        epoch: [bar for bar in result["histograms"] if bar["epoch"] == epoch] for epoch in (2, 3)
    }
    assert len(result["histograms"]) == sum(map(len, bars.values()))
    assert [sum(bar["share"] for bar in each) for each in bars.values()] == pytest.approx([1, 1])
    mean = sum(bar["share"] * (bar["bin_low"] + bar["bin_high"]) / 2 for bar in bars[3])
    assert mean == pytest.approx(result["q_b_mean"], abs=0.03), "they are of what it is of"
    assert [point["index"] for point in result["points"]] == list(range(12))
    assert train_trial(configs["dcl"], lambda _: None)["points"] == []


def test_only_infonce_and_eqco_bound_the_mutual_information(configs):
    for objective, num_negatives in (("simclr", 2 * 63), ("moco", 256), ("eqco", 256)):
        (row,), _ = run(configs[objective])
        assert row["mi_bound"] == pytest.approx(math.log(1 + num_negatives) - row["base_loss"])
    assert "mi_bound" not in run(configs["dcl"])[0][0]
    (row,), _ = run(configs["moco_v3"])
    expected = math.log(1 + 63) - row["base_loss"] / (4 * 0.2)
    assert row["mi_bound"] == pytest.approx(expected), "without the factor 2 tau of two directions"
    assert "mi_bound" not in run(configs["moco_v3"], tau_schedule="cosine")[0][0]
    (row,), _ = run(configs["byol"], lam=0.25)
    assert "q_b_mean" not in row, "no negatives, nothing to couple with"
    total = 0.25 * row["regularizer_loss"] + 0.75 * row["base_loss"]
    assert row["train_loss"] == pytest.approx(total, rel=1e-5)


def test_each_seed_has_weights_and_draws_of_its_own(configs):
    first, again, other = (
        new_state({**configs["byol"], "seed": seed}, torch.device("cpu")) for seed in (0, 0, 1)
    )
    for name, weights in first.objective.state_dict().items():
        if isinstance(weights, torch.Tensor) and weights.ndim > 1:
            assert torch.equal(weights, again.objective.state_dict()[name])
            assert not torch.equal(weights, other.objective.state_dict()[name]), name
    for stream in ("view_generator", "draw_generator"):
        drawn = [torch.rand(4, generator=getattr(x, stream)) for x in (first, again, other)]
        assert torch.equal(drawn[0], drawn[1])
        assert not torch.equal(drawn[0], drawn[2]), stream


def test_lr_of_a_row_is_that_of_the_epochs_last_step(configs):
    rows, _ = run(configs["simclr"], epochs=3, warmup_epochs=1)
    last_steps = [STEPS - 1, 2 * STEPS - 1]  # of the cosine over the two epochs after the warm-up
    cosine = [0.025 * 0.5 * (1 + math.cos(math.pi * step / (2 * STEPS))) for step in last_steps]
    assert [row["lr"] for row in rows] == pytest.approx([0.025, *cosine])


def test_no_epochs_score_the_untrained_encoder(configs, monkeypatch):
    def forbidden(*_: Any) -> None:
        raise AssertionError("no training was asked for")

    monkeypatch.setattr(loop, "train_epoch", forbidden)
    rows, result = run(configs["simclr"], epochs=0)
    scores = METRICS | PROBED | {"rankme", "alpha_req"}
    assert [(row["epoch"], set(row)) for row in rows] == [(0, {"epoch", *scores})]
    counts = {"status": "finished", "epochs_trained": 0, "num_resumes": 0, "num_images": 0}
    hits = result["hits"]
    side = {"histograms": [], "points": [], "hits": hits}
    assert result == {**{name: rows[0][name] for name in scores}, **counts, **side}
    assert [row["metric"] for row in hits] == ["knn_top1", "knn_top5", "linear_top1", "linear_top5"]
    assert run(configs["dcl"], epochs=0)[1] == result, (
        "nothing but the encoder and the seed matters"
    )
    assert run(configs["simclr"], epochs=0, seed=1)[1] != result


def test_dinos_teacher_is_scored_and_kept_where_it_is_asked_for(monkeypatch):
    """The teacher is the moving mean of the students of all steps, taken here by hand."""
    students: list[dict[str, torch.Tensor]] = []

    def note(self, *arguments, of):
        if of is step or not students:
            students.append({n: p.detach().clone() for n, p in self.encoder.named_parameters()})
        return of(self, *arguments)

    begin, step = DINO.begin_step, DINO.after_step
    for name, function in {"begin_step": begin, "after_step": step}.items():
        monkeypatch.setattr(DINO, name, partialmethod(note, of=function))
    parts = {"framework": "dino", "loss": "soft_cross_entropy"}
    parts |= {"regularizer": "none", "views": "two"}
    kept, rows = {}, {}
    for network in ("student", "teacher"):
        students.clear()
        config = small_config(
            parts, momentum=0.8, momentum_schedule="constant", score_network=network
        )
        rows[network] = []
        kept[network] = train_trial(config, rows[network].append)
        mean = students[0]
        for student in students[1:]:
            mean = {name: 0.8 * mean[name] + 0.2 * student[name] for name in mean}
        expected = {"student": students[-1], "teacher": mean}[network]
        for name, value in expected.items():
            torch.testing.assert_close(kept[network]["encoder"][name], value)
        encoder = build_encoder(config).eval()
        encoder.load_state_dict(kept[network]["encoder"])
        splits = loop.load_splits(config, DataPlace())
        images = [
            on_device(s, splits.train, torch.device("cpu")) for s in (splits.train, splits.val)
        ]
        scores = score_encoder(encoder, *images, config, last=True)
        assert scores.values["knn_top1"] == kept[network]["knn_top1"]
    [losses, others] = ([row["train_loss"] for row in rows[name]] for name in rows)
    assert losses == others
    assert len(students) > 2
    assert any((kept["student"]["encoder"][n] != v).any() for n, v in mean.items())


@pytest.mark.parametrize("changes", [{"epochs": 0}, {}, {"precision": "bf16"}])
def test_no_convolution_may_round_to_tf32_whatever_the_precision(monkeypatch, changes):
    """Scores are float32, of fine-tuned networks too; training in a half type needs no TF32. What
    torch's environment says of products does not count either.
    """
    allowed = []

    def look(module: torch.nn.Module, _: Any) -> None:
        if isinstance(module, torch.nn.Conv2d):
            allowed.append(torch.backends.cudnn.allow_tf32)
            allowed.append(torch.backends.cuda.matmul.allow_tf32)

    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", True)  # torch's default
    torch.backends.cuda.matmul.allow_tf32 = True
    hook = torch.nn.modules.module.register_module_forward_pre_hook(look)
    try:
        tuned = {"finetune": "sgd", "finetune_labels": "1", "finetune_epochs": 1}
        run(small_config(COMBINATIONS["simclr-dcl-none-two"], **tuned), **changes)
    finally:
        hook.remove()
        torch.backends.cuda.matmul.allow_tf32 = False  # torch's default
    assert allowed
    assert not any(allowed)


def test_scoring_does_not_change_training(configs):
    """Neither the weights, nor the running statistics, nor any random draw."""
    often, often_result = run(configs["dclw"], epochs=2, eval_every=1)
    seldom, seldom_result = run(configs["dclw"], epochs=2, eval_every=2)
    assert [row["train_loss"] for row in often] == [row["train_loss"] for row in seldom]
    assert {**often_result, "histograms": []} == {**seldom_result, "histograms": []}


def test_the_test_split_is_not_read(configs, monkeypatch):
    expected = run(configs["simclr"])
    load = loop.load_splits
    monkeypatch.setattr(loop, "load_splits", lambda *args: replace(load(*args), test=None))
    assert run(configs["simclr"]) == expected


# Divergence.


@pytest.mark.parametrize(
    ("objective", "changes"),
    [("simclr", {"lr": 1e6}), ("dcl", {"lr": 1e30}), ("dclw", {"tau": 1e-38})],
)
def test_a_loss_that_is_not_finite_is_divergence(configs, objective, changes):
    rows: list[Row] = []
    with pytest.raises(DivergedError, match=r"the loss is (nan|inf|-inf) in epoch \d"):
        train_trial({**configs[objective], "epochs": 4, "eval_every": 4, **changes}, rows.append)
    assert all(math.isfinite(row["train_loss"]) for row in rows), "no broken row is reported"


def test_features_that_are_not_finite_are_divergence(configs):
    """One step alone: its loss is of the initial weights, and only the encoder that it leaves is
    broken.
    """
    rows: list[Row] = []
    whole = {"batch_size": NUM_TRAIN, "chunk_size": NUM_TRAIN, "lr": 1e30}
    with pytest.raises(DivergedError, match="features are not finite"):
        train_trial({**configs["simclr"], **whole}, rows.append)
    assert rows == []


# Every hyperparameter matters.

# Where the catalog's other value is none of the small cases.
OTHER: dict[str, Any] = {
    "batch_size": 8, "epochs": 1, "key_norm": "sync", "knn_k": 1, "lidar_views": 2,
    "lr_milestones": "0.2", "norm_group": 8, "precision": "bf16", "tsne_points": 12,
    "whitening_size": 8,
}  # fmt: skip
# They have tests of their own: forty gray digits are too few for them, or the plan decides them.
ELSEWHERE = {
    "jitter_saturation", "jitter_hue", "gray_prob", "second_blur_prob",
    "second_solarize_prob", "recipe", "stem", "compile", "pooling", "init", "knn_temperature",
    "freeze_patch_embed",
    *(name for name in PARAM if name.startswith(("probe_", "finetune"))),
}  # fmt: skip


@pytest.mark.parametrize("name", sorted({*PARAM} - {*SELECTED_PARTS} - ELSEWHERE))
def test_another_value_of_a_hyperparameter_gives_other_numbers(name, monkeypatch):
    """In the first case that owns it. That all who own it read it is a test of all cases."""
    monkeypatch.setattr(loop, "load_splits", few_images)
    monkeypatch.setattr(mutual_information, "STEPS_PER_EPOCH", 5)
    param = PARAM[name]
    config = next(
        case
        for case in (*CASES.values(), *PAIR_CASES.values())
        if name in case and case[name] != OTHER.get(name)
        if not any(case.get(n) == value for n, value in param.inert_when)
    )
    # wmse whitens batches of more than twice proj_dim
    small = {"proj_dim": 5, "estimate_batches": 5, "critic_hidden": 8, "critic_dim": 4}
    small |= {} if name in ("eval_every", "linear_every") else {"eval_every": 2}
    config = config | {n: value for n, value in small.items() if n in config}
    values = OTHER.get(name), *other_values(param, param.default)[:1], param.default
    other = next(value for value in values if value not in (None, config[name]))
    assert counts(config, DataPlace(), name, [other], "") == ""


def test_knn_hyperparameters_change_the_score_and_not_the_training(configs):
    base = {"knn_k": 200}  # so many that their weights count
    (row,), _ = run(configs["simclr"], **base)
    for change in ({"knn_k": 1}, {"knn_temperature": 5.0}):
        (other,), _ = run(configs["simclr"], **base | change)
        assert other["train_loss"] == row["train_loss"]
        assert {n: other[n] for n in METRICS} != {n: row[n] for n in METRICS}


# Loss scaling.


def one_epoch(scaler: torch.amp.GradScaler | None) -> tuple[dict[str, float], list[torch.Tensor]]:
    """Statistics and weights after an epoch with a scaler as fp16 has one."""
    config = CASES["simclr-dcl-none-two"] | {"tau": 0.02}
    state, statistics = new_state(config, torch.device("cpu")), StepStatistics()
    state.scaler = scaler or state.scaler
    loop.train_epoch(state, state.objective, some_digits(100), config, statistics)
    return statistics.summary(), [p.detach() for p in state.objective.parameters()]


def test_a_scaled_loss_trains_the_same_weights():
    plain, weights = one_epoch(None)
    scaled, scaled_weights = one_epoch(torch.amp.GradScaler("cpu", init_scale=1024.0))
    assert scaled == pytest.approx(plain, rel=1e-3)
    torch.testing.assert_close(scaled_weights, weights, rtol=1e-3, atol=1e-4)


def test_steps_whose_scaled_gradient_overflows_are_skipped_and_not_in_the_statistics():
    """The scale halves until it fits, as at the beginning of every trial in fp16."""
    initial = new_state(CASES["simclr-dcl-none-two"], torch.device("cpu")).objective.parameters()
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**126)
    summary, weights = one_epoch(scaler)
    assert scaler.get_scale() < 2.0**126, "one overflows"
    assert all(math.isfinite(value) for value in summary.values())
    assert all(torch.isfinite(w).all() for w in weights)
    assert not all(map(torch.equal, weights, initial)), "the later steps are taken"


@pytest.mark.usefixtures("few")
def test_steps_whose_gradient_is_never_finite_end_the_trial(monkeypatch):
    """They would all be skipped: a finite loss, and scores of weights that have not trained."""
    scaler = torch.amp.GradScaler("cpu")
    monkeypatch.setattr(Precision, "scaler", lambda _: scaler)
    total = Comparison.total

    def with_a_root_of_zero(self, values_P, *rest):
        losses = total(self, values_P, *rest)
        return losses._replace(total=losses.total + (losses.total - losses.total).sqrt())

    monkeypatch.setattr(Comparison, "total", with_a_root_of_zero)
    config = CASES["simclr-dcl-none-two"] | {"epochs": 20}
    with pytest.raises(DivergedError, match=r"^fp16 has no number .* in epoch \d+; a smaller"):
        train_trial(config, lambda row: math.isfinite(row["train_loss"]))


def test_a_diverged_trial_names_hyperparameters_of_its_own():
    message = str(DivergedError.of("x", {"lr": 1, "tau": 1}))
    assert message == "x; a smaller lr or a larger tau may help"
    assert str(DivergedError.of("x", {"lr": 1})) == "x; a smaller lr may help"


FIRST_TRIAL = """
import sys
from studies.records.plain import plain_config
from clsweep.train.loop import train_trial
given = {"encoder": "conv4", "width": 4, "epochs": 1, "precision": "fp32"}
train_trial(plain_config("digits", **given), lambda row: True)
print(sorted({"sklearn", "scipy", "pandas", "torch._dynamo", "sympy"} & {*sys.modules}))
"""


def test_the_first_trial_of_a_process_loads_no_more_than_it_needs():
    """Each of these takes from half a second to two."""
    done = subprocess.run([sys.executable, "-c", FIRST_TRIAL], capture_output=True, text=True)
    assert done.stdout == "[]\n", done.stderr

"""Planted faults, and which tier of the tests catches each.

    python tests/mutations.py            # all of them
    python tests/mutations.py gather     # those whose name contains a word

Each fault is a text of one source file that is replaced in a copy of the package. The tests that
should see it run in that copy: first those of the fast tier, then, if it escapes, those of the full
one. A fault that escapes both is a hole in the tests, and the exit code is 1.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
TIERS = {"fast": "not slow and not soak", "full": "slow and not soak"}
NO_TESTS = 5  # exit code of pytest where a tier has none of these tests


@dataclass(frozen=True)
class Fault:
    """`old` stands once in clsweep/`file`; `tests` may end in options such as -k."""

    name: str
    file: str
    old: str
    new: str
    tests: str


LOSSES = "tests/objective/test_losses.py tests/objective/test_loss_limits.py"
DISTRIBUTION = "tests/objective/test_distribution.py"
TARGETS = "tests/objective/test_targets.py"
WORKERS = "tests/contracts/test_world_size.py"
RESAMPLE = (
    "tests/analysis/test_spread_intervals.py tests/analysis/test_robustness.py "
    "tests/analysis/test_coverage.py"
)
CONTRAST = "return pair_loss(z1_ND, z2_ND, tau, Negatives(negatives, index_NK, skip_own), coupled="
PAGES = "tests/test_pages.py tests/statistics/test_sentences.py"
VIEWS = "tests/data/test_augmentations.py"
FAULTS = (
    # Augmentations.
    Fault("partners of another batch", "train/images.py",
          "generator, batch_size)), labels", "generator)), labels", VIEWS),
    Fault("an augmentation shifts the crops of the next views", "data/augment.py",
          "generator=generator.clone_state()", "generator=generator", VIEWS),
    # Losses.
    Fault("infonce without its positive", "objective/losses.py",
          f"{CONTRAST}True)",
          f"{CONTRAST}False)",
          LOSSES),
    Fault("dcl with its positive", "objective/losses.py",
          f"    {CONTRAST}False)",
          f"    {CONTRAST}True)",
          LOSSES),
    Fault("dclw: sign of the weight", "objective/losses.py",
          "w_N = 2 - len(s_N)", "w_N = 2 + len(s_N)", LOSSES),
    Fault("eqco: sign of the margin", "objective/losses.py",
          "n_N + math.log(alpha /", "n_N - math.log(alpha /", LOSSES),
    Fault("align_uniform: sign of the potential", "objective/losses.py",
          "-uniform_t * distances_NK", "uniform_t * distances_NK", LOSSES),
    Fault("cosine: sign", "objective/losses.py",
          "return -loss_scale * (p_ND * z_ND)", "return loss_scale * (p_ND * z_ND)", LOSSES),
    Fault("barlow: sign of the redundancy", "objective/losses.py",
          "+ off_diag * off_diagonal", "- off_diag * off_diagonal", LOSSES),
    Fault("abscl without absolute values", "objective/losses.py",
          "dim_standardize, absolute=True)", "dim_standardize, absolute=False)", LOSSES),
    Fault("dimcl: columns of another length", "objective/losses.py",
          "variance_D = z_ND.square().mean(0)", "variance_D = z_ND.square().sum(0)", LOSSES),
    Fault("cross-entropy: sign of the true class", "objective/losses.py",
          "return logits_NC.gather(1, labels_N1)[:, 0],",
          "return -logits_NC.gather(1, labels_N1)[:, 0],", LOSSES),
    Fault("gradient: the positive pushes", "objective/contrastive.py",
          "first.addcmul_(force, z2, value=-1)", "first.addcmul_(force, z2, value=1)", LOSSES),
    Fault("gradient: negatives feel no anchor", "objective/contrastive.py",
          "grad.addmm_(block.T, z[rows] * share)",
          "grad.addmm_(block.T, 0 * z[rows] * share)", LOSSES),
    # Workers and chunks.
    Fault("gather: gradient of another worker", "train/collectives.py",
          "first = rank() * ctx.num_rows", "first = 0 * ctx.num_rows", WORKERS),
    Fault("gather: gradient not summed", "train/collectives.py",
          "return grads[0][first : first + ctx.num_rows] * world_size()",
          "return grads[0][first : first + ctx.num_rows]", WORKERS),
    Fault("gather: no gradient", "train/collectives.py",
          "return grads[0][first : first + ctx.num_rows] * world_size()",
          "return grads[0][first : first + ctx.num_rows] * 0", WORKERS),
    Fault("batch norm: variance of one worker", "train/collectives.py",
          "var_WC.mean(0) + between_C", "var_WC.mean(0)", WORKERS),
    Fault("batch norm: gradient of one worker", "train/collectives.py",
          "_of_all(torch.stack([weight_grad_C, bias_grad_C])).sum(0)",
          "torch.stack([weight_grad_C, bias_grad_C])", WORKERS),
    Fault("chunks: rows of another chunk", "train/loop.py",
          "first = (number * world_size() + rank()) * len(z_ND)",
          "first = (number + rank()) * len(z_ND)", WORKERS),
    Fault("chunks: gradient not summed over workers", "train/loop.py",
          "grads.append(grad[first : first + len(z_ND)] * world_size())",
          "grads.append(grad[first : first + len(z_ND)])", WORKERS),
    # Frameworks and views.
    Fault("queue: off by one", "model/queues.py",
          "self._places.add_(num).remainder_(size)",
          "self._places.add_(num + 1).remainder_(size)", "tests/model/test_queues.py"),
    Fault("momentum the wrong way round", "objective/framework.py",
          "online, 1 - self.momentum_at(progress))", "online, self.momentum_at(progress))",
          "tests/objective/test_frameworks.py"),
    Fault("momentum not applied", "objective/framework.py",
          "online, 1 - self.momentum_at(progress))", "online, 0.0)",
          "tests/contracts/test_objectives.py -k stopped"),
    Fault("views: pairs missing", "objective/views.py",
          "if pair[0] < num_global_views)", "if pair[0] < 1)",
          "tests/objective/test_views.py"),
    Fault("targets: small views too", "objective/framework.py",
          "if not self.targets or i in self.targets]", "]", "tests/objective/test_views.py"),
    Fault("shuffling: keys grouped as queries", "objective/frameworks.py",
          "norm_group, is_strided=True", "norm_group, is_strided=False",
          "tests/objective/test_frameworks.py -k shuffled"),
    Fault("shuffling: groups of one worker", "train/collectives.py",
          "row_N = rank() * len(x) + torch", "row_N = torch", WORKERS),
    Fault("vicreg: covariance / N", "objective/distribution.py",
          "@ centred_ND / (num_samples - 1)", "@ centred_ND / num_samples", DISTRIBUTION),
    Fault("vicreg: one view's variance", "objective/distribution.py",
          "std_coeff * (std1 + std2) / 2", "std_coeff * std1", DISTRIBUTION),
    Fault("sigreg: half of the integral", "objective/distribution.py",
          "return 2 * num_samples * torch", "return num_samples * torch", DISTRIBUTION),
    Fault("sigreg: without its weight", "objective/distribution.py",
          "distance_VMT * phi_T, t_T", "distance_VMT, t_T", DISTRIBUTION),
    Fault("sigreg: slices of any length", "objective/distribution.py",
          "F.normalize(slices_MD, dim=1).T", "slices_MD.T", DISTRIBUTION),
    Fault("sinkhorn: samples before prototypes", "objective/targets.py",
          "log_q_NK = log_q_NK - log_q_NK.logsumexp(0)\n",
          "log_q_NK = log_q_NK - log_q_NK.logsumexp(1, keepdim=True)\n",
          "tests/objective/test_targets.py"),
    Fault("swav: queue in use before it is full", "objective/targets.py",
          "is not None and queue.is_full:", "is not None:", TARGETS),
    Fault("queue: full a step too early", "model/queues.py",
          "self.is_full |= self._next", "self.is_full |= 1 + self._next",
          "tests/model/test_queues.py"),
    Fault("swav: prototypes of any length", "objective/targets.py",
          "        self._normalise()\n        for view, queue", "        for view, queue", TARGETS),
    Fault("dino: centre the wrong way round", "objective/targets.py",
          "1 - self.center_momentum)", "self.center_momentum)", TARGETS),
    Fault("dino: teacher without its prototypes", "objective/targets.py",
          'cast(nn.Linear, self.target[-1]).weight', "self.prototypes.weight.detach()", TARGETS),
    Fault("prototypes never frozen", "objective/targets.py",
          "if self.epoch < self.freeze_epochs", "if self.epoch < 0", TARGETS),
    Fault("prototypes averaged over workers twice", "objective/targets.py",
          '_ignore = ["prototypes.weight"]', "_ignore: list[str] = []", WORKERS),
    # Scores.
    Fault("kNN with another k", "train/knn.py",
          "knn_k, dim=1", "max(1, knn_k - 1), dim=1",
          "tests/train/test_knn.py"),
    Fault("kNN: its hyperparameters swallowed", "train/evaluation.py",
          "arguments(config, metric.part)",
          '{"knn_k": 200} if metric.every_epoch else {"probe_l2": 1}',
          "tests/train/test_loop.py -k knn_hyperparameters"),
    Fault("reproduce: other data sets taken together", "analysis/reproduce.py",
          " or len(here) > 1", "", "tests/studies/test_perfect_runs.py -k dcl/table_01"),
    Fault("differences: the other sign", "statistics/reproduce.py",
          '["published"] > 0', '["published"] < 0',
          "tests/statistics/test_reproduction.py -k another_scale"),
    Fault("probe: views never drawn anew", "train/probe.py",
          "(probe_lr,), redraw=views", "(probe_lr,), redraw=None",
          "tests/train/test_probe.py -k settings"),
    Fault("probe: the grid's first rate", "train/probe.py",
          "hits.index(max(hits))", "0",
          "tests/train/test_probe.py -k Grid"),
    Fault("fine-tuning on all labels", "train/finetune.py",
          "labelled_rows(bank_labels_N, share)", "labelled_rows(bank_labels_N, 1.0)",
          "tests/train/test_evaluation.py -k more_labels"),
    Fault("transfer scored on the images it is fitted on", "train/evaluation.py",
          "other.test if test else other.val", "other.train",
          "tests/train/test_evaluation.py -k transfer"),
    Fault("learning rate: milestones after the warm-up", "train/optim.py",
          "share * at.num_steps", "share * (at.num_steps - at.num_warmup_steps)",
          "tests/train/test_optim.py -k whole_epochs"),
    Fault("momentum begins with what was in memory", "train/optim.py",
          "    if sgd_momentum:\n", "    if False:\n", "tests/train/test_loop.py -k overflows"),
    Fault("a better setting that lacks seeds is forgotten", "analysis/best_setting.py",
          "for more in (-missed[0][0], missed[1][0]):", "for more in ():",
          "tests/analysis/test_best_setting.py -k gap"),
    Fault("a final score of the training images", "data/datasets.py",
          "return Splits(train=train, val=test, test=test)",
          "return Splits(train=train, val=train, test=test)",
          "tests/data/test_datasets.py -k without_a_validation"),
    Fault("seed of the weights ignored", "train/state.py",
          'drawing(config["seed"], "model")', 'drawing(0, "model")',
          "tests/train/test_loop.py -k seed"),
    # Studies and results.
    Fault("search.seed ignored", "study/design.py",
          "random.Random(search.seed).shuffle(cells)", "random.Random(0).shuffle(cells)",
          "tests/study/test_design.py"),
    Fault("a checkpoint's row is lost", "train/checkpoints.py",
          "        self._tell(self.rows)", "        self._tell(self.rows[1:])",
          "tests/train/test_checkpoints.py"),
    Fault("results: a part's row is lost", "results/store.py",
          "tables += self.files.each(part, others)", "tables += self.files.each(part, others[1:])",
          "tests/results/test_folder.py"),
    Fault("results: a row twice after a compaction", "results/store.py",
          't.filter(pc.invert(pc.is_in(t["trial_id"], newer)))', "t",
          "tests/contracts/test_kills.py tests/results/test_folder.py"),
    Fault("results: what the run itself wrote is lost", "results/folder.py",
          "single.append(table)", "single.append(table.slice(0, 0))",
          "tests/results/test_folder.py"),
    Fault("ranking: an unfinished configuration takes part", "results/standings.py",
          "return len(self.scores) == self.num_planned", "return bool(self.scores)",
          "tests/results/test_standings.py"),
    Fault("a finished trial runs again", "cluster/runner.py",
          "if trial.trial_id not in done]", "if trial.trial_id]",
          "tests/cluster/test_runner.py -k can_be_run_again"),
    Fault("a row of other hyperparameters is read", "results/integrity.py",
          "(at := pc.index(differs, True).as_py()) >= 0", "(at := -1) >= 0",
          "tests/results/test_folder.py"),
    Fault("a table of another folder is read", "results/integrity.py",
          ".get(FOLDER_ID, folder) != folder:", ".get(FOLDER_ID, folder) == b\"\":",
          "tests/results/test_folder.py"),
    Fault("a damaged table is read", "results/integrity.py",
          "!= _checksum(view[:at], view[footer:]):", "== b\"\":", "tests/results/test_parquet.py"),
    Fault("a folder that was replaced is written to", "results/lock.py",
          "self.run is not None and self.run != self._current_run()", "self.run == 0",
          "tests/results/test_lock.py"),
    Fault("the encoder of the worst is kept", "results/retention.py",
          "= min((place, trial_ids)", "= max((place, trial_ids)",
          "tests/results/test_retention.py"),
    Fault("a folder's plug-in counts as the user's own", "catalog/plugins.py",
          "rows=tuple(rows), is_sealed=True", "rows=tuple(rows), is_sealed=False",
          "tests/results/test_trust.py"),
    Fault("a checkpoint of other hyperparameters is gone on from", "train/checkpoints.py",
          "if name not in _NAMES_ONLY}", "if name == 0}", "tests/train/test_checkpoints.py"),
    Fault("a study goes on with fewer seeds", "study/extend.py",
          "if seed not in now]", "if seed == now]", "tests/study/test_extend.py"),
    Fault("chunks larger than the batch", "catalog/ownership.py",
          'values["chunk_size"] = min(', 'values["chunk_size"] = max(',
          "tests/study/test_resolve.py"),
    Fault("a race forgets that both have noise", "cluster/schedulers/racing.py",
          "np.sqrt(2 / shared[known])", "np.sqrt(1 / shared[known])",
          "tests/cluster/test_racing.py tests/study"),
    Fault("a factor's levels in another order", "study/factors.py",
          "return dict(zip((*names, ", "return dict(zip((*reversed(names), ",
          "tests/study/test_factors.py"),
    # Statistics.
    Fault("interval of half the confidence", "analysis/bootstrap.py",
          "tail = (1.0 - CONFIDENCE) / 2.0", "tail = 1.0 - CONFIDENCE", RESAMPLE),
    Fault("wrong percentile", "analysis/bootstrap.py",
          "[tail, 1.0 - tail])", "[2.0 * tail, 1.0 - tail])", RESAMPLE),
    Fault("interval without the noise of the noise", "analysis/bootstrap.py",
          "drawn *= noise.draw(num, rng)[..., None]", "drawn *= noise.pooled**0.5", RESAMPLE),
    Fault("interval too narrow: noise not inflated", "analysis/noise.py",
          "even = np.sqrt(self.freedom *", "even = np.sqrt(0.7 * self.freedom *",
          RESAMPLE),
    Fault("worst fifth for worst tenth", "analysis/score_table.py",
          "max(1, values.shape[-2] // 10)", "max(1, values.shape[-2] // 5)", RESAMPLE),
    Fault("Holm without monotonicity", "analysis/holm.py",
          "np.maximum.accumulate(steps)", "steps", "tests/analysis/test_holm.py"),
    # What is said.
    Fault("winner and loser are swapped", "statistics/pair_sentences.py",
          "seen_from(row, row[\"winner\"], null=kind.null) if is",
          "row | {\"a\": row[\"b\"], \"b\": row[\"a\"]} if is", PAGES),
    Fault("an open end is printed as closed", "statistics/pair_sentences.py",
          "if null and not known(low) else low", "if not known(low) else low", PAGES),
    Fault("a claim does without the corrected p", "sweeps/notes.py",
          "needed and row[\"p_holm\"] <= _ALPHA", "needed", PAGES),
    Fault("one with fewer seeds is the best so far", "statistics/search_history.py",
          "np.where(counts == max(counts.max(initial=1), 1), measured.means, np.nan)",
          "measured.means", "tests/statistics/test_search_history.py"),
    Fault("a trial without a data set is left out", "sweeps/study_cells.py",
          "if trials[name].isna().any():", "if False:", "tests/statistics/test_of_cells.py"),
    Fault("a note is told once for all", "sweeps/notes.py",
          "is_all = len(names) == len(frame) > 1", "is_all = True", PAGES),
    Fault("what is dear is on the front", "statistics/pareto.py",
          "np.lexsort((-scores, costs))", "np.lexsort((-scores, -costs))",
          "tests/statistics/test_pareto.py"),
    Fault("the robust setting is the one with the worst neighbours", "analysis/recommend.py",
          "np.where(eligible, around.worst, -np.inf)", "np.where(eligible, -around.worst, -np.inf)",
          "tests/analysis/test_recommend.py"),
    Fault("images are counted twice, in the seeds' noise too", "analysis/image_intervals.py",
          "np.maximum(0.0, moved - squares @ self.own)", "np.maximum(0.0, moved)",
          "tests/analysis/test_image_intervals.py"),
    Fault("each side of a lead has images of its own", "analysis/image_intervals.py",
          "np.square(wa @ a.draws - wb @ b.draws).mean()",
          "(np.square(wa @ a.draws) + np.square(wb @ b.draws)).mean()",
          "tests/analysis/test_image_intervals.py"),
    Fault("hits of another score are taken", "analysis/image_intervals.py",
          "atol=MATCH, rtol=0", "atol=np.inf, rtol=0",
          "tests/analysis/test_image_intervals.py"),
    Fault("twice the seeds for a lead", "analysis/evidence.py",
          "np.sqrt(of_seeds + self.of_images**2)", "np.sqrt(2 * of_seeds + self.of_images**2)",
          "tests/analysis/test_compare.py tests/analysis/test_mean_tests.py"),
    Fault("the bands of every value are those of one", "analysis/response.py",
          "table[levels[order], np.arange", "table[levels[order] * 0, np.arange",
          "tests/analysis/test_robustness.py tests/analysis/test_marginals.py"),
    Fault("an effect needs seeds as if it were alone", "analysis/anova.py",
          "level = (1.0 - CONFIDENCE) / max(sum(part.freedom > 0 for part in effects.values()), 1)",
          "level = 1.0 - CONFIDENCE",
          "tests/analysis/test_anova.py"),
)  # fmt: skip


def main() -> int:
    words = sys.argv[1:]
    faults = [f for f in FAULTS if not words or any(word in f.name for word in words)]
    sys.dont_write_bytecode = True  # of a file that changes twice within a second
    os.environ["PYTHONDONTWRITEBYTECODE"] = "1"
    with tempfile.TemporaryDirectory(prefix="mutations-") as folder:
        copy = Path(folder)
        for name in ("clsweep", "tests", "studies"):
            ignored = shutil.ignore_patterns("__pycache__")
            shutil.copytree(ROOT / name, copy / name, ignore=ignored)
        for name in ("pyproject.toml", "README.md", "docs"):  # that tests only read
            (copy / name).symlink_to(ROOT / name)
        os.chdir(copy)
        os.environ["PYTHONPATH"] = folder
        sys.path[:] = [folder, *(place for place in sys.path if Path(place).resolve() != ROOT)]
        import pytest  # noqa: F401  # imported once, for all that are forked off
        import torch._dynamo  # noqa: F401

        escaped = [fault.name for fault in faults if caught_by(fault, copy) is None]
    print(f"\n{len(faults) - len(escaped)} of {len(faults)} caught")
    return int(bool(escaped))


def caught_by(fault: Fault, copy: Path) -> str | None:
    """The tier that catches the fault, which is printed; None: no tier does."""
    path = copy / "clsweep" / fault.file
    text = path.read_text()
    assert text.count(fault.old) == 1, (
        f"{fault.name}: the text stands {text.count(fault.old)} times"
    )
    path.write_text(text.replace(fault.old, fault.new))
    started = time.monotonic()
    catching = (
        tier
        for tier, expression in TIERS.items()
        if fails(["-m", expression, *fault.tests.split()], copy / "log")
    )
    tier = next(catching, None)
    path.write_text(text)
    print(f"{tier or 'ESCAPED':8} {time.monotonic() - started:5.0f} s  {fault.name}", flush=True)
    return tier


def fails(arguments: list[str], log: Path) -> bool:
    """Whether a test fails, in a process of its own that begins with what is imported here."""
    pid = os.fork()
    if pid == 0:
        import pytest

        with log.open("a") as output:
            os.dup2(output.fileno(), 1)
            os.dup2(output.fileno(), 2)
            os._exit(pytest.main(["-x", "-q", "-p", "no:cacheprovider", *arguments]))
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    if code not in (0, 1, NO_TESTS):
        sys.exit(f"pytest {' '.join(arguments)} ended with {code}:\n{log.read_text()[-3000:]}")
    return code == 1


if __name__ == "__main__":
    sys.exit(main())

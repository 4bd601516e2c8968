"""What pictures kept as JPEG cost in score: `clsweep run` on tiles of photographs, kept as pixels
and as JPEG, with the same seeds. A photograph is a class; its tiles are to a view of 64 pixels as
ImageNet's 500 x 375 are to 224. It goes on where it was stopped.

    python tests/benchmarks/jpeg_scores.py --photos PATH --folder PATH [--pairs 40] [--epochs 6]

It prints JPEG less pixels in points: the mean of the pairs, its 95 % interval and its 90 % one,
which lies within the margin if both are equivalent (two one-sided tests at 5 %, Schuirmann 1987).
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
from _machine import CLSWEEP, options
from PIL import Image
from scipy import stats

import clsweep

TILE, SHORTER, MOST_TILES, QUALITY, MARGIN = (143, 107), 1200, 121, 92, 1.0
STUDY = """\
name: jpeg-scores
factors:
  dataset:
    - &data {{name: imagefolder, label: pixels, store_as: pixels, root: {folder}/tiles,
             cache: {folder}/cache, image_size: 64, val_fraction: 0.5}}
    - {{<<: *data, label: jpeg, store_as: jpeg}}
metric: {{name: knn_top1}}
seeds: {seeds}
base: {{encoder: conv4, width: 16, epochs: {epochs}, eval_every: {epochs}, batch_size: 64,
       warmup_epochs: 1, tau: 0.2, optimizer: adamw, lr: 0.003, lr_rule: none, crop_scale: 0.08,
       jitter_strength: 0.4, gray_prob: 0, blur_prob: 0, linear_probe: ridge, knn_k: 20}}
objectives:
  dcl: {{framework: simclr, loss: dcl}}
search: {{method: grid}}
"""


def cut(photo: Path, root: Path, rng: np.random.Generator) -> None:
    """Write tiles of a photograph, the first of them into the test part, which needs some."""
    picture = Image.open(photo).convert("RGB")
    if (share := SHORTER / min(picture.size)) < 1:
        size = round(picture.width * share), round(picture.height * share)
        picture = picture.resize(size, Image.Resampling.LANCZOS)
    columns, rows = picture.width // TILE[0], picture.height // TILE[1]
    for number, place in enumerate(rng.permutation(columns * rows)[:MOST_TILES]):
        left, top = place % columns * TILE[0], place // columns * TILE[1]
        folder = root / ("train" if number else "val") / photo.stem
        folder.mkdir(parents=True, exist_ok=True)
        tile = picture.crop((left, top, left + TILE[0], top + TILE[1]))
        tile.save(folder / f"{place:04}.jpg", quality=QUALITY)


def main() -> None:
    given = options(__doc__, photos="", folder="jpeg_scores", pairs=40, epochs=6)
    folder, rng = Path(given.folder).absolute(), np.random.default_rng(0)
    if not (folder / "tiles").exists():
        for photo in sorted(Path(given.photos).iterdir()):
            cut(photo, folder / "tiles", rng)
    path, seeds = folder / "study.yaml", [*range(given.pairs)]
    path.write_text(STUDY.format(folder=folder, seeds=seeds, epochs=given.epochs))
    command = [sys.executable, *CLSWEEP, "run", str(path), "--out", str(folder / "results")]
    subprocess.run(command, check=True)
    trials = clsweep.open_results(folder / "results").trials
    for metric in ("knn_top1", "linear_top1"):
        scores = trials.pivot(index="seed", columns="dataset", values=metric)
        less = (scores["jpeg"] - scores["pixels"]).dropna()
        about = len(less) - 1, less.mean(), stats.sem(less)
        wide, narrow = stats.t.interval(0.95, *about), stats.t.interval(0.90, *about)
        verdict = "within" if max(map(abs, narrow)) < MARGIN else "not within"
        print(f"{metric}: {less.mean():+.2f} of {scores['pixels'].mean():.2f}, {len(less)} pairs;",
              "95 %: [{:+.2f}, {:+.2f}]; 90 %: [{:+.2f}, {:+.2f}],".format(*wide, *narrow),
              f"{verdict} {MARGIN:g}")  # fmt: skip


if __name__ == "__main__":
    main()

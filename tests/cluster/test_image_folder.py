"""A whole study on a folder of images: planned, decoded by the driver, trained on, continued
elsewhere.
"""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import clsweep as clsweep_api
from tests.cluster.conftest import clsweep as command


@pytest.mark.slow
def test_a_study_on_an_image_folder(
    write_study: Callable[..., Path],
    tmp_path: Path,
    cli_command: Callable[..., tuple[int, str, str]],
) -> None:
    rng = np.random.default_rng(0)
    for part, count in (("train", 10), ("test", 2)):
        for name in ("ants", "bees", "cats"):
            (tmp_path / "images" / part / name).mkdir(parents=True)
            for i in range(count):
                pixels = rng.integers(0, 256, (20, 24, 3), dtype=np.uint8)
                Image.fromarray(pixels).save(tmp_path / "images" / part / name / f"{i}.png")
    dataset = {
        "name": "imagefolder",
        "root": str(tmp_path / "images"),
        "image_size": 16,
        "val_fraction": 0.2,
    }
    base = {"encoder": "conv4", "width": 4, "epochs": 1, "batch_size": 8, "knn_k": 3}
    path = write_study(
        dataset=dataset | {"cache": str(tmp_path / "cache")}, base=base, seeds=[0],
        space={"tau": {"choices": [0.1, 0.5]}}, objectives={"dcl": {"framework": "simclr",
                                                                    "loss": "dcl"}},
    )  # fmt: skip
    out = tmp_path / "out"
    code, output = command("run", path, "--out", out, "--limit", 1)
    assert code == 0, output
    [made] = (folder for folder in (tmp_path / "cache").iterdir() if folder.is_dir())
    assert (made / "manifest.json").exists()
    code, output = command(
        "run", path, "--out", out, "--set", f"dataset.cache={tmp_path / 'other'}"
    )
    assert code == 0, output
    results = clsweep_api.open_results(out)
    assert results.trials["status"].tolist() == ["finished"] * 2
    for table in (results.plan, results.trials, results.references):
        assert {
            tuple(row) for row in table[["image_size", "num_train", "num_classes"]].to_numpy()
        } == {(16, 30, 3)}
    assert results.material.chance == 100 / 3
    run = ("run", str(path), "--out", str(out))
    code, _, message = cli_command(*run, "--set", "dataset.image_size=8")
    assert code == 2
    assert "dataset.image_size: 16 -> 8" in message
    replaced = tmp_path / "images" / "train" / "cats" / "9.png"
    replaced.write_bytes((tmp_path / "images" / "train" / "ants" / "9.png").read_bytes() + b"other")
    code, _, message = cli_command(*run)
    assert code == 2
    assert "images in imagefolder.images_digest: " in message
    replaced.unlink()
    code, _, message = cli_command(*run)
    assert code == 2
    assert "images in imagefolder.num_train: 30 -> 29" in message

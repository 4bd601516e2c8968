"""`clsweep export`: the file, what is printed with it, and how it refuses."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import torchvision
import yaml
from safetensors.torch import load_file

from clsweep.api import open_results
from clsweep.cli.export import _of_two
from clsweep.objective.build import build_encoder
from clsweep.results.folder import ResultsFolder, encoder_file
from clsweep.results.weights import about_encoder, pack_weights
from clsweep.study.design import plan_row, plan_trials
from clsweep.study.resolve import load_study
from tests.model import own_encoders
from tests.planted import study_at

NORMALISATION = {"mean": [0.4914, 0.4822, 0.4465], "std": [0.247, 0.2435, 0.2616]}
ENCODERS = {
    "conv4": {"encoder": "conv4", "width": 4},
    "small18": {"encoder": "resnet18", "stem": "small"},
    "standard18": {"encoder": "resnet18", "stem": "standard"},
    "standard50": {"encoder": "resnet50", "stem": "standard"},
}
BEYOND = [
    ({"encoder": "timm/vit_tiny_patch16_224", "pooling": "token"}, 3),
    ({"encoder": "timm/convnext_atto", "pooling": "model"}, 5),
    ({"encoder": "torchvision/shufflenet_v2_x0_5"}, 3),
    ({"encoder": "tests.model.own_encoders:pooled"}, 5),
]
FOLLOWED = {"small18": "moco"}  # by a momentum copy
MEAN = [0.5, 0.4, 0.3, 0.6, 0.7]
BY = {"metric": "knn_top1", "mode": "max"}


@pytest.fixture
def clsweep(cli_command):
    return lambda *words: cli_command(*map(str, words))


@pytest.fixture
def out(tmp_path, kept):
    """A copy of `kept` that a test may change."""
    return Path(shutil.copytree(kept, tmp_path / "out"))


@pytest.fixture(scope="module")
def kept(tmp_path_factory):
    """Results of one objective per encoder: seed 0 finished and its encoder was kept, seed 1 not; 2
    failed.
    """
    objectives = {
        name: {
            "framework": FOLLOWED.get(name, "simclr"),
            "loss": "dcl",
            "base": {**base, "epochs": 1},
        }
        for name, base in ENCODERS.items()
    }
    tree = {"name": "s", "dataset": {"name": "cifar10"}, "seeds": [0, 1, 2, 3]}
    tmp_path = tmp_path_factory.mktemp("kept")
    path = tmp_path / "study.yaml"
    path.write_text(yaml.safe_dump(tree | {"objectives": objectives, "search": {"method": "grid"}}))
    folder, rows = created(path, tmp_path / "out")
    for row in rows:
        if row["seed"] == 2:
            error = {"error_class": "DivergedError", "error_message": "nan\nnan"}
            folder.add_trial({**row, "status": "failed", **error})
        elif row["seed"] < 2:
            folder.add_trial({**row, "status": "finished", "knn_top1": 80.0 - row["seed"]})
        if row["seed"] == 0 and row["objective"] != "standard50":
            store(folder, row)
    return tmp_path / "out"


def created(path, out):
    """The results folder of a study of which no trial has ended, and the rows of its plan."""
    study = load_study(path)
    rows = [plan_row(study, trial) for trial in plan_trials(study)]
    folder = ResultsFolder(str(out))
    folder.create(study.document.dump(), rows)
    return folder, rows


def store(folder, row, normalisation=NORMALISATION):
    """Keep an encoder of a trial, which has seen some images; returns it."""
    encoder = build_encoder(row)
    for name, buffer in encoder.named_buffers():
        if name.endswith("running_mean"):
            torch.nn.init.normal_(buffer)
    weights = {name: tensor.numpy() for name, tensor in encoder.state_dict().items()}
    about = about_encoder(row, normalisation)
    folder.write(encoder_file(row["trial_id"]), pack_weights(weights, about))
    return encoder


def features(network):
    x_NCHW = torch.randn(2, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        return network(x_NCHW)


@pytest.mark.parametrize(
    ("name", "suffix"),
    [("conv4", ".safetensors"), ("small18", ".pt"), ("standard18", ".safetensors")],
)
def test_a_file_holds_the_module_that_is_named(clsweep, out, name, suffix):
    file = out.parent / f"exported{suffix}"
    code, output, err = clsweep("export", f"{out}/{name}-0000-s0", "--out", file)
    assert (code, err) == (0, "")
    said = " ".join(output.split())
    assert said.startswith(f"{file}: {ENCODERS[name]['encoder']} (")
    assert ("not its momentum copy" in said) == (name in FOLLOWED)
    normalised = "minus the mean (0.4914, 0.4822, 0.4465)"
    assert f"RGB images of 32 x 32 pixels in [0, 1], {normalised}" in said
    encoder = open_results(out).encoder(f"{name}-0000-s0")
    assert not encoder.training
    assert f"({str(out)!r}).encoder('{name}-0000-s0') is the module" in said
    is_ours = name == "conv4"
    assert ("fc is all zeros" in said) == (not is_ours)
    assert f"those of {'clsweep.model.encoders.conv4' if is_ours else 'torchvision'}." in said
    state = torch.load(file) if suffix == ".pt" else load_file(file)
    if is_ours:
        network = build_encoder(ENCODERS[name] | {"channels": 3})
    else:
        network = torchvision.models.resnet18()
        if name == "small18":  # as docs/results.md has it
            network.conv1 = torch.nn.Conv2d(3, 64, 3, 1, 1, bias=False)
            network.maxpool = torch.nn.Identity()
    network.load_state_dict(state)
    network.fc = torch.nn.Identity()
    torch.testing.assert_close(features(network.eval()), features(encoder), rtol=0, atol=0)


def trained(kept, place, encoder, channels):
    """A results folder of one trial of an encoder, that trial, and the encoder itself."""
    plan = ResultsFolder(str(kept)).plan().to_pylist()
    sizes = {"channels": channels, "image_size": 32, "view_size": 32}
    rows = [r | (encoder | sizes if r["trial_id"] == "conv4-0000-s0" else {}) for r in plan]
    folder = ResultsFolder(str(place))
    folder.create((kept / "study.yaml").read_text(), rows)
    row = next(r for r in rows if r["trial_id"] == "conv4-0000-s0")
    folder.add_trial({**row, "status": "finished", "knn_top1": 80.0})
    network = store(folder, row, {"mean": MEAN[:channels], "std": [0.2] * channels})
    return folder, row, network.eval()


@pytest.mark.parametrize(
    ("encoder", "channels"),
    [*BEYOND, ({"encoder": "conv4", "width": 4}, 5)],
)
def test_encoders_beyond_the_catalog_and_of_other_channels_are_loaded_too(
    clsweep, kept, tmp_path, encoder, channels
):
    folder, row, network = trained(kept, tmp_path / "new", encoder, channels)
    x_NCHW = torch.randn(2, channels, 32, 32, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        expected = network(x_NCHW)
        # of an encoder of one's own alone it is asked for
        words = (f"{folder.path}/{row['trial_id']}", "--out", tmp_path / "e.pt", "--trust")
        code, _, err = clsweep("export", *words)
        assert (code, err) == (0, "")
        state = network.state_dict()
        assert all(torch.equal(t, state[n]) for n, t in torch.load(tmp_path / "e.pt").items())
        loaded = open_results(folder.path).encoder(row["trial_id"], trust=":" in row["encoder"])
        assert torch.equal(loaded(x_NCHW), expected)
    assert expected.shape == (2, network.num_features)


@pytest.mark.parametrize(
    ("encoder", "channels"),
    [
        ({"encoder": "conv4", "width": 4}, 1),
        *(pytest.param(*each, marks=pytest.mark.slow) for each in BEYOND),
    ],
)
def test_a_program_needs_pytorch_alone(clsweep, kept, tmp_path, encoder, channels):
    folder, row, network = trained(kept, tmp_path / "new", encoder, channels)
    words = (f"{folder.path}/{row['trial_id']}", "--out", tmp_path / "e.pt2", "--trust")
    code, output, err = clsweep("export", *words)
    assert (code, err) == (0, "")
    assert "32 x 32 pixels in [0, 1], float32" in " ".join(output.split())
    x_NCHW = torch.rand(3, channels, 32, 32)  # more than it was made with
    standardised = (x_NCHW - torch.tensor(MEAN[:channels])[:, None, None]) / 0.2
    if channels == 1:
        standardised = standardised.expand(-1, 3, -1, -1)
    with torch.no_grad():
        expected = network(standardised)
    lines = output.partition("To load it:\n")[2].splitlines()
    features = alone("\n".join(map(str.strip, lines)), x_NCHW, tmp_path)
    torch.testing.assert_close(features, expected)


def alone(snippet, x_NCHW, folder):
    """What the printed lines make of images in a process that has PyTorch, but not this package."""
    torch.save(x_NCHW, folder / "x.pt")
    code = "import sys; sys.modules.update(dict.fromkeys(('clsweep', 'tests', 'timm')))\n" + snippet
    code += f"\ntorch.save(network(torch.load({str(folder / 'x.pt')!r})), {str(folder / 'f.pt')!r})"
    subprocess.run([sys.executable, "-I", "-c", code], check=True, cwd=folder)
    return torch.load(folder / "f.pt")


def test_an_encoder_of_ones_own_is_looked_for_where_one_is(clsweep, tmp_path, monkeypatch):
    """As `clsweep run` looks for it; the command is no script of that folder."""
    text = Path(own_encoders.__file__).read_text()
    (tmp_path / "my_own_networks.py").write_text(text)
    path, out = tmp_path / "study.yaml", tmp_path / "out"
    path.write_text(
        "name: s\ndataset: {name: digits}\nseeds: [0]\nsearch: {method: grid}\n"
        "base: {encoder: 'my_own_networks:pooled', epochs: 1}\n"
        "objectives: {dcl: {framework: simclr, loss: dcl}}\n"
    )
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.chdir(tmp_path)
    folder, [row] = created(path, out)
    store(folder, row)
    folder.add_trial(row | {"status": "finished", "knn_top1": 80.0})
    sys.path.remove(str(tmp_path))
    words = ("export", out / "dcl-0000-s0", "--out", tmp_path / "e.pt")
    assert f"encoder my_own_networks:pooled, of {tmp_path}" in clsweep(*words)[2]
    assert clsweep(*words, "--trust")[0] == 0
    sys.path.remove(str(tmp_path))
    monkeypatch.delitem(sys.modules, "my_own_networks")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    code, _, err = clsweep(*words, "--trust")
    assert (code, len(err.splitlines())) == (2, 1)
    assert "No module named 'my_own_networks'. Go where that module lies" in err


@pytest.mark.parametrize(
    ("trial", "file", "messages"),
    [
        ("{out}/conv4-0000-s0", "c.onnx",
         ["--out ", "expected a name that ends in .safetensors, .pt or .pt2, given 'c.on"]),
        ("{out}/conv4-0000-s0", "none/c.pt", ["--out ", "found no folder"]),
        ("{out}/conv4-000-s0", "c.pt",
         ["no such trial. Did you mean 'conv4-0000-s0'?", "clsweep trials"]),
        ("{out}/conv4-0000-s1", "c.pt",
         ["was not kept. Kept: conv4-0000-s0, small18-0000-s0, standard18-0000-s0. ",
          "encoders: {{keep: all}}"]),
        ("{out}/conv4-0000-s2", "c.pt",
         ["this trial failed and has no encoder: DivergedError: nan"]),
        ("{out}/conv4-0000-s3", "c.pt", ["has not finished yet", "clsweep status"]),
        ("{out}", "c.pt", ["expected a trial of it, as in {out}/conv4-0000-s0"]),
        ("{out}/nowhere/conv4-0000-s0", "c.pt", ["{out}/nowhere: expected a results folder"]),
        ("conv4-0000-s0", "c.pt", ["conv4-0000-s0: expected DIR/TRIAL_ID"]),
    ],
)  # fmt: skip
def test_what_cannot_be_exported_is_refused_in_one_line(clsweep, out, trial, file, messages):
    code, output, err = clsweep("export", trial.format(out=out), "--out", out.parent / file)
    assert (code, output) == (2, "")
    assert len(err.splitlines()) == 1
    for message in messages:
        assert message.format(out=out) in err
    assert not (out.parent / file).exists()


@pytest.mark.parametrize("network", ["student", "teacher"])
def test_of_dinos_two_encoders_it_says_which_it_is(network, tmp_path):
    dino = {"framework": "dino", "loss": "soft_cross_entropy"}
    tree = {"space": {}, "objectives": {"dino": dino | {"base": {"score_network": network}}}}
    folder, rows = created(study_at(tmp_path / "study.yaml", **tree), tmp_path / "out")
    folder.add_trial(rows[0] | {"status": "finished", "knn_top1": 90.0})
    said = _of_two(folder, rows[0]["trial_id"])
    assert ("momentum teacher's encoder" in said) == (network == "teacher")

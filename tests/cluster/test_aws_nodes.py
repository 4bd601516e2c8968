"""`cluster.yaml` and `aws.sh` on an EC2 of this machine, moto's, through Ray's own code for AWS:
what `ray up` makes of them, which node types its autoscaler asks for, and what EC2 is asked.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from clsweep.cli.new import CLUSTER_FILES, CLUSTERS
from tests.cluster.conftest import installed
from tests.s3_server import ENVIRONMENT, REGION, S3Server

ROOT = Path(__file__).parents[2]
SPOT = {"MarketType": "spot"}
NAMES = [
    f"/aws/service/deeplearning/ami/x86_64/base-oss-nvidia-driver{gpu}-ubuntu-22.04/latest/ami-id"
    for gpu in ("-gpu", "")
]


@pytest.fixture(scope="module")
def aws(tmp_path_factory):
    """A client of each service of an AWS without anything, as boto3 and the command line see it."""
    import boto3

    server, home = S3Server(), tmp_path_factory.mktemp("home")
    with pytest.MonkeyPatch.context() as patch:
        variables = ENVIRONMENT | {"AWS_ENDPOINT_URL": f"http://{server.address}"}
        for name, value in (variables | {"HOME": str(home), "AWS_REGION": ""}).items():
            patch.setenv(name, value)
        (home / ".ssh").mkdir()
        yield lambda service: boto3.client(service, REGION)
    server.close()


@pytest.fixture(scope="module")
def filled(aws):
    """`cluster.yaml` with an image and a group."""
    ec2 = aws("ec2")
    image = ec2.describe_images()["Images"][0]["ImageId"]
    vpc = ec2.describe_vpcs()["Vpcs"][0]["VpcId"]
    made = ec2.create_security_group(GroupName="mine", Description="mine", VpcId=vpc)
    for profile in ("clsweep-head", "clsweep-worker"):
        aws("iam").create_instance_profile(InstanceProfileName=profile)
    text = (ROOT / "cluster.yaml").read_text().replace("ami-FILL-IN", image)
    return yaml.safe_load(text.replace("sg-FILL-IN", made["GroupId"]))


def up(config: dict[str, Any]) -> dict[str, Any]:
    """What `ray up` makes of it before it starts the head."""
    from ray.autoscaler._private.providers import _NODE_PROVIDERS
    from ray.autoscaler._private.util import prepare_config

    prepared = prepare_config(config)
    provider = _NODE_PROVIDERS["external"](prepared["provider"])
    return provider.bootstrap_config(provider.fillout_available_node_types_resources(prepared))


@pytest.fixture(scope="module")
def started(filled):
    return up(filled)


def groups(aws: Any) -> list[Any]:
    return aws("ec2").describe_security_groups()["SecurityGroups"]


def test_ray_up_uses_the_group_as_it_is(aws, filled, started):
    types = started["available_node_types"].values()
    (group,) = filled["available_node_types"]["head"]["node_config"]["SecurityGroupIds"]
    assert [kind["node_config"]["SecurityGroupIds"] for kind in types] == [[group]] * 3
    (mine,) = (each for each in groups(aws) if each["GroupId"] == group)
    assert mine["IpPermissions"] == []  # Ray would open SSH to everybody
    assert {each["GroupName"] for each in groups(aws)} == {"default", "mine"}


@pytest.mark.slow
def test_ray_up_makes_no_group_in_another_region(filled):
    elsewhere = {**filled, "provider": {**filled["provider"], "region": "eu-west-1"}}
    with pytest.raises(AssertionError):  # and Ray says: failed to detect a security group
        up(elsewhere)
    import boto3

    there = boto3.client("ec2", "eu-west-1").describe_security_groups()["SecurityGroups"]
    assert {each["GroupName"] for each in there} == {"default"}


@pytest.mark.parametrize("node_type", ["gpu_worker", "gpu4_worker"])
def test_the_next_kind_is_asked_for_where_ec2_refuses_one(started, node_type, monkeypatch):
    import botocore.client
    from botocore.exceptions import ClientError
    from ray.autoscaler._private.providers import _get_node_provider
    from ray.autoscaler.node_launch_exception import NodeLaunchException

    asked, refused = [], ["g5 spot", "g6 spot"]
    call = botocore.client.BaseClient._make_api_call

    def answer(client: Any, operation: str, request: dict[str, Any]) -> Any:
        if operation == "RunInstances":
            market = request.get("InstanceMarketOptions")
            assert market in (None, SPOT)
            kind = request["InstanceType"].partition(".")[0] + (" spot" if market else "")
            asked.extend([kind] if kind not in asked[-1:] else [])
            if kind in refused:
                error = {"Code": "InsufficientInstanceCapacity", "Message": "none left"}
                raise ClientError({"Error": error}, operation)
        return call(client, operation, request)

    monkeypatch.setattr(botocore.client.BaseClient, "_make_api_call", answer)
    config = started["available_node_types"][node_type]["node_config"]
    provider = _get_node_provider(started["provider"], "clsweep")
    (made,) = provider.create_node(config, {"ray-node-kind": "worker"}, 1).values()
    assert asked == ["g5 spot", "g6 spot", "g5"]
    assert made.instance_type == config["InstanceType"]
    assert made.iam_instance_profile["Arn"].endswith("/clsweep-worker")
    refused += ["g5", "g6"]
    with pytest.raises(NodeLaunchException):
        provider.create_node(config, {"ray-node-kind": "worker"}, 1)
    assert asked[3:] == ["g5 spot", "g6 spot", "g5", "g6"]


@pytest.mark.parametrize(
    ("workers", "trials", "expected"),
    [(1, 3, {"gpu_worker": 3}), (4, 1, {"gpu4_worker": 1}), (1, 20, {"gpu_worker": 8})],
)
def test_the_autoscaler_asks_for_the_node_type_that_the_trials_fit(
    started, workers, trials, expected
):
    from ray.autoscaler.v2.instance_manager.config import AutoscalingConfig
    from ray.autoscaler.v2.scheduler import ResourceDemandScheduler, SchedulingRequest
    from ray.core.generated.autoscaler_pb2 import GangResourceRequest, ResourceRequest

    config = AutoscalingConfig(started, skip_content_hash=True)
    worker = ResourceRequest(resources_bundle={"CPU": 1, "GPU": 1})
    request = SchedulingRequest(
        disable_launch_config_check=True,
        node_type_configs=config.get_node_type_configs(),
        max_num_nodes=config.get_max_num_worker_nodes(),  # the head is up
        gang_resource_requests=[GangResourceRequest(requests=[worker] * workers)] * trials,
    )
    launches = ResourceDemandScheduler().schedule(request).to_launch
    workers_asked = {launch.instance_type: launch.count for launch in launches}
    assert {name: n for name, n in workers_asked.items() if name != "head"} == expected


@pytest.mark.parametrize(
    ("driver", "passes"), [("580.65.06", True), ("595.91.07", True), ("570.1", False), ("", False)]
)
def test_a_worker_without_a_fitting_driver_says_so(started, driver, passes, tmp_path):
    from ray.autoscaler.v2.instance_manager.config import AutoscalingConfig

    # NVIDIA's table: CUDA 13 of any minor version runs on drivers from 580 on
    assert re.search(r"^cuda-toolkit==13\.", (ROOT / "constraints.txt").read_text(), re.MULTILINE)
    smi = tmp_path / "nvidia-smi"
    smi.write_text(f"#!/bin/bash\n{f'echo {driver}; echo {driver}' if driver else 'exit 9'}\n")
    smi.chmod(0o755)
    config = AutoscalingConfig(started, skip_content_hash=True)
    (command,), again = map(config.get_initialization_commands, ["gpu_worker", "gpu4_worker"])
    assert [command] == again
    assert config.get_initialization_commands("head") == []
    done = subprocess.run(
        ["bash", "-c", command], env={"PATH": f"{tmp_path}:{os.environ['PATH']}"},
        capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == (not passes)
    assert done.stdout.splitlines() == [] if passes else done.stdout.count("\n") == 1
    assert passes or f"580 or newer, this image has '{driver}'" in done.stdout


DISK = "/dev/nvme0n1 Amazon Elastic Block Store"
NVME = f"{DISK}\n/dev/nvme1n1 Amazon EC2 NVMe Instance Storage"


@pytest.mark.parametrize(
    ("disks", "before", "expected"),
    [
        (NVME, [], ["mkfs.ext4 -q /dev/nvme1n1", "mount /dev/nvme1n1 NVME"]),
        (NVME, ["formatted"], ["mount /dev/nvme1n1 NVME"]),
        (NVME, ["mounted"], []),
        (DISK, [], []),
    ],
    ids=["bare", "formatted", "mounted by the image", "no NVMe"],
)
def test_the_nvme_is_formatted_once_and_holds_the_cache(disks, before, expected, tmp_path):
    nvme = tmp_path / "nvme"
    stand_ins = {
        "sudo": '[ "$1" = systemctl ] && exit 5; exec "$@"',
        "lsblk": f"echo '{disks}'",
        "mountpoint": "[ -e mounted ]",
        "blkid": "[ -e formatted ]",
        "mkfs.ext4": 'echo mkfs.ext4 "$@" >> log; touch formatted',
        "mount": 'echo mount "$@" >> log; touch mounted',
    }
    for name, body in stand_ins.items():
        (tmp_path / name).write_text(f"#!/bin/bash\n{body}\n")
        (tmp_path / name).chmod(0o755)
    for name in before:
        (tmp_path / name).touch()
    commands = yaml.safe_load((ROOT / "cluster.yaml").read_text())["worker_setup_commands"]
    here = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "HOME": str(tmp_path / "home"),
            "USER": str(os.getuid())}  # fmt: skip
    (tmp_path / "home").mkdir()
    for command in commands * 2:  # `ray up` runs them again
        text = command.replace("/opt/dlami/nvme", str(nvme))
        subprocess.run(["bash", "-c", text], env=here, cwd=tmp_path, check=True)
    log = tmp_path / "log"
    made = log.read_text().replace(str(nvme), "NVME").splitlines() if log.exists() else []
    assert made == expected
    assert (tmp_path / "home" / ".cache" / "clsweep").resolve() == nvme / "clsweep"


def running(aws: Any) -> list[Any]:
    is_up = [{"Name": "instance-state-name", "Values": ["pending", "running"]}]
    reservations = aws("ec2").describe_instances(Filters=is_up)["Reservations"]
    return [instance for each in reservations for instance in each["Instances"]]


@pytest.mark.slow
def test_ray_up_and_down_with_a_head_that_does_all_it_is_told(aws, filled, tmp_path):
    """`ray` itself; `ssh` and `rsync` write down what they are to do, and succeed."""
    from ray.autoscaler.v2.instance_manager.config import FileConfigReader

    (tmp_path / "ssh").write_text(f'#!/bin/bash\necho "${{@: -1}}" >> {tmp_path}/log\n')
    (tmp_path / "rsync").write_text(
        '#!/bin/bash\n[[ "${@: -1}" != *bootstrap_config.yaml ]] || '
        f'cp "${{@: -2:1}}" {tmp_path}/on_head.yaml\n'
    )
    for name in ("ssh", "rsync"):
        (tmp_path / name).chmod(0o755)
    token = Path("~/.ray/auth_token").expanduser()
    token.parent.mkdir(exist_ok=True)
    token.write_text("0" * 64)
    (tmp_path / "cluster.yaml").write_text(yaml.safe_dump(filled))
    before = {each["InstanceId"] for each in running(aws)}
    here = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT)}

    def ray(*command: str) -> None:
        line = [Path(sys.executable).parent / "ray", *command, "--yes", tmp_path / "cluster.yaml"]
        subprocess.run(line, env=os.environ | here, cwd=ROOT, check=True, capture_output=True)

    ray("up", "--no-config-cache")
    (head,) = (each for each in running(aws) if each["InstanceId"] not in before)
    assert head["InstanceType"] == "m6i.xlarge"
    assert head["IamInstanceProfile"]["Arn"].endswith("/clsweep-head")
    commands = (tmp_path / "log").read_text()
    steps = [commands.index(text) for text in ("uv==", "uv venv", "uv pip", "ray stop", "--head")]
    assert steps == sorted(steps)
    assert "nvidia-smi" not in commands
    Path("~/ray_bootstrap_key.pem").expanduser().write_text("a key")  # the monitor hashes it
    reader = FileConfigReader(tmp_path / "on_head.yaml", skip_content_hash=True)
    of_workers = reader.get_cached_autoscaling_config().get_node_type_configs()
    assert {name: kind.max_worker_nodes for name, kind in of_workers.items()} == {
        "head": 1, "gpu_worker": 8, "gpu4_worker": 2
    }  # fmt: skip
    ray("down")
    assert {each["InstanceId"] for each in running(aws)} == before


@pytest.fixture(scope="module")
def command_line(tmp_path_factory):
    """The folder of the AWS command line, which pins versions of its own."""
    return installed(tmp_path_factory.mktemp("aws"), "awscli==1.46.3")


@pytest.mark.soak
@pytest.mark.parametrize(("name", "times"), [(NAMES[0], 2), (NAMES[1], 1)])
def test_aws_sh_makes_what_cluster_yaml_names(
    aws, command_line, name, times, tmp_path, monkeypatch
):
    from moto.servicequotas.models import ServiceQuotasBackend
    from moto.ssm.models import ssm_backends

    image = aws("ec2").describe_images()["Images"][0]["ImageId"]
    aws("ssm").put_parameter(Name="image", Value=image, Type="String", Overwrite=True)
    published = ssm_backends["123456789012"][REGION]._parameters
    monkeypatch.setitem(published, name, published["image"])  # a name that AWS keeps for itself
    quota = {"Value": 0.0}
    monkeypatch.setattr(ServiceQuotasBackend, "get_service_quota", lambda *_, **__: quota)
    (tmp_path / "cluster.yaml").write_text((ROOT / "cluster.yaml").read_text())
    here = {"PATH": f"{command_line}:{os.environ['PATH']}", "SSH_FROM": "203.0.113.7/32"}
    command = ["bash", CLUSTERS / CLUSTER_FILES["aws"], "--results", "mine", "--data", "s3://b/in"]
    for _ in range(times):
        done = subprocess.run(
            command, cwd=tmp_path, env=os.environ | here, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr
    assert "'All G and VT Spot Instance Requests': 0.0 vCPUs" in done.stdout
    config = yaml.safe_load((tmp_path / "cluster.yaml").read_text())
    head = up(config)["available_node_types"]["head"]["node_config"]
    assert head["ImageId"] == image
    (made,) = (each for each in groups(aws) if [each["GroupId"]] == head["SecurityGroupIds"])
    rules = {rule["IpProtocol"]: rule for rule in made["IpPermissions"]}
    assert [each["CidrIp"] for each in rules["tcp"]["IpRanges"]] == ["203.0.113.7/32"]
    assert rules["-1"]["UserIdGroupPairs"][0]["GroupId"] == made["GroupId"]
    assert not rules["-1"]["IpRanges"]
    allowed = {
        role: aws("iam").get_role_policy(RoleName=role, PolicyName="clsweep")["PolicyDocument"]
        for role in ("clsweep-head", "clsweep-worker")
    }
    of_worker = allowed["clsweep-worker"]["Statement"]
    actions = {each["Action"]: each["Resource"] for each in of_worker}
    assert actions.keys() == {"s3:PutObject", "s3:ListBucket", "s3:GetObject"}
    assert actions["s3:PutObject"] == "arn:aws:s3:::b/*clsweep-index-*.json"
    assert actions["s3:GetObject"] == "arn:aws:s3:::b/*"
    assert {"iam:PassRole", "s3:ListBucket"} <= {
        str(each["Action"]) for each in allowed["clsweep-head"]["Statement"]
    }
    profile = aws("iam").get_instance_profile(InstanceProfileName="clsweep-worker")
    assert [role["RoleName"] for role in profile["InstanceProfile"]["Roles"]] == ["clsweep-worker"]

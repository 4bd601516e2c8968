#!/bin/bash
# What cluster.yaml names on AWS: the image, a group with SSH from your address alone, a role for the head and one for
# the workers. Beside cluster.yaml, with the AWS command line set up:
#
#   bash aws.sh --results BUCKET --data BUCKET       both may be one; typed again it changes nothing but your address
#
# It fills in the ami- and sg- of cluster.yaml, in the region that stands there, and shows the quotas of GPUs.
# Checked with the AWS command line on an EC2 and IAM of one machine (tests/cluster/test_aws_nodes.py), not on AWS.
set -euo pipefail

usage() { echo "usage: bash aws.sh --results BUCKET --data BUCKET" >&2; exit 2; }
results='' data=''
while [ $# -gt 0 ]; do
    [ $# -ge 2 ] || usage
    case "$1" in
        --results) results=${2#s3://} results=${results%%/*} ;;
        --data) data=${2#s3://} data=${data%%/*} ;;
        *) usage ;;
    esac
    shift 2
done
[ -n "$results" ] && [ -n "$data" ] || usage

# The one place of the region. The command line reads the first name or the second, boto3 the second.
AWS_REGION=$(sed -n "s/^  region: *[\"']\{0,1\}\([a-z0-9-]*\).*/\1/p" cluster.yaml)
[ -n "$AWS_REGION" ] || { echo "aws.sh: no region in cluster.yaml" >&2; exit 1; }
export AWS_REGION AWS_DEFAULT_REGION=$AWS_REGION AWS_PAGER=
cluster=$(sed -n "s/^cluster_name: *[\"']\{0,1\}\([A-Za-z0-9_-]*\).*/\1/p" cluster.yaml)
here=${SSH_FROM:-$(curl -fsS https://checkip.amazonaws.com)/32}

# AWS's documents use either name of the parameter. A region that has both has one image.
of_image=/aws/service/deeplearning/ami/x86_64/base-oss-nvidia-driver
image=$(aws ssm get-parameters --query 'Parameters[0].Value' --output text --names \
    $of_image-gpu-ubuntu-22.04/latest/ami-id $of_image-ubuntu-22.04/latest/ami-id)
[ "$image" != None ] || { echo "aws.sh: no Deep Learning Base AMI in $AWS_REGION by either name" >&2; exit 1; }

# An answer that something is there already is as good as making it; any other error ends this.
make() {
    local answer
    answer=$("$@" 2>&1) || grep -Eq 'EntityAlreadyExists|\.Duplicate|SessionsPerInstanceProfile' <<< "$answer" ||
        { echo "aws.sh: ${*:1:3}: $answer" >&2; exit 1; }
}
vpc=$(aws ec2 describe-vpcs --filters Name=is-default,Values=true --query 'Vpcs[0].VpcId' --output text)
[ "$vpc" != None ] || { echo "aws.sh: no default VPC in $AWS_REGION: aws ec2 create-default-vpc" >&2; exit 1; }
make aws ec2 create-security-group --group-name clsweep-ray --vpc-id "$vpc" \
    --description "clsweep: SSH from one address, the nodes among themselves"
group=$(aws ec2 describe-security-groups --query 'SecurityGroups[0].GroupId' --output text \
    --filters Name=group-name,Values=clsweep-ray Name=vpc-id,Values="$vpc")
make aws ec2 authorize-security-group-ingress --group-id "$group" --protocol tcp --port 22 --cidr "$here"
make aws ec2 authorize-security-group-ingress --group-id "$group" --protocol -1 --source-group "$group"

# The head starts workers, ends instances of Ray alone, gives workers their role, reads the data and writes the results.
# A worker reads the data, and leaves its index.
statements() {
    echo '{"Version": "2012-10-17", "Statement": ['"$1"'
      {"Effect": "Allow", "Action": "s3:ListBucket", "Resource": ["arn:aws:s3:::'"$data"'", "arn:aws:s3:::'"$results"'"]},
      {"Effect": "Allow", "Action": "s3:GetObject", "Resource": "arn:aws:s3:::'"$data"'/*"}]}'
}
account=$(aws sts get-caller-identity --query Account --output text)
of_head='{"Effect": "Allow", "Action": ["ec2:RunInstances", "ec2:Describe*"], "Resource": "*"},
      {"Effect": "Allow", "Action": "ec2:CreateTags", "Resource": "*",
       "Condition": {"StringEquals": {"ec2:CreateAction": "RunInstances"}}},
      {"Effect": "Allow", "Action": ["ec2:CreateTags", "ec2:TerminateInstances"], "Resource": "*",
       "Condition": {"StringEquals": {"ec2:ResourceTag/ray-cluster-name": "'$cluster'"}}},
      {"Effect": "Allow", "Action": "iam:PassRole", "Resource": "arn:aws:iam::'$account':role/clsweep-worker"},
      {"Effect": "Allow", "Action": "iam:CreateServiceLinkedRole", "Resource": "*",
       "Condition": {"StringEquals": {"iam:AWSServiceName": "spot.amazonaws.com"}}},
      {"Effect": "Allow", "Action": ["s3:GetObject", "s3:PutObject", "s3:DeleteObject"], "Resource": "arn:aws:s3:::'$results'/*"},'
of_worker='{"Effect": "Allow", "Action": "s3:PutObject", "Resource": "arn:aws:s3:::'$data'/*clsweep-index-*.json"},'
ec2='{"Version": "2012-10-17", "Statement": {"Effect": "Allow", "Principal": {"Service": "ec2.amazonaws.com"}, "Action": "sts:AssumeRole"}}'
for role in clsweep-head clsweep-worker; do
    make aws iam create-role --role-name $role --assume-role-policy-document "$ec2"
    further=$of_worker; [ $role = clsweep-worker ] || further=$of_head
    make aws iam put-role-policy --role-name $role --policy-name clsweep --policy-document "$(statements "$further")"
    make aws iam create-instance-profile --instance-profile-name $role
    make aws iam add-role-to-instance-profile --instance-profile-name $role --role-name $role
done

sed -e "s/ami-FILL-IN/$image/" -e "s/sg-FILL-IN/$group/" cluster.yaml > cluster.yaml.new && mv cluster.yaml.new cluster.yaml
echo "$AWS_REGION: image $image, group $group, SSH from $here"
quota() {
    echo "quota '$2': $(aws service-quotas get-service-quota --service-code ec2 --quota-code "$1" --query Quota.Value --output text) vCPUs"
}
quota L-3819A6DF "All G and VT Spot Instance Requests"
quota L-DB2E81BA "Running On-Demand G and VT instances"
echo "Eight g5.2xlarge take 64. New accounts have 0; ask for more, and wait for the answer, with:"
echo "  aws service-quotas request-service-quota-increase --service-code ec2 --quota-code CODE --desired-value 64 --region $AWS_REGION"

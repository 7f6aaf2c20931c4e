"""The small program of test_standin.py: one of most things, on one explicit provider each."""

import base64
import json

import pulumi
import pulumi_aws as aws
import pulumi_kubernetes as k8s

config = pulumi.Config()
TRUST = json.dumps(
    {
        "Version": "2012-10-17",
        "Statement": [{"Effect": "Allow", "Principal": {"Service": "eks.amazonaws.com"}, "Action": "sts:AssumeRole"}],
    }
)

provider = aws.Provider(
    "aws",
    region="us-west-2",
    default_tags={"tags": {"application": "small", **(config.get_object("tags") or {})}},
    allowed_account_ids=[config.get("account") or "111122223333"],
)
on_aws = pulumi.ResourceOptions(provider=provider)
zones = aws.get_availability_zones_output(state="available", opts=pulumi.InvokeOutputOptions(provider=provider))

vpc = aws.ec2.Vpc("net", cidr_block="10.0.0.0/16", enable_dns_hostnames=True, opts=on_aws)
subnets = [
    aws.ec2.Subnet(
        f"net-{index}",
        vpc_id=vpc.id,
        cidr_block=f"10.0.{index * 16}.0/20",
        availability_zone=zones.names[index],
        opts=on_aws,
    )
    for index in range(2)
]
group = aws.ec2.SecurityGroup("net", vpc_id=vpc.id, opts=on_aws)
aws.vpc.SecurityGroupIngressRule(
    "https",
    security_group_id=group.id,
    cidr_ipv4="10.0.0.0/16",
    ip_protocol="tcp",
    from_port=443,
    to_port=443,
    description="HTTPS inside",
    opts=on_aws,
)

bucket = aws.s3.Bucket(
    "weights",
    bucket="small-weights",
    opts=pulumi.ResourceOptions(provider=provider, retain_on_delete=True, import_=config.get("adopt")),
)
aws.s3.BucketPolicy(
    "weights",
    bucket=bucket.id,
    policy=bucket.arn.apply(
        lambda arn: json.dumps(
            {
                "Version": "2012-10-17",
                "Statement": [{"Effect": "Deny", "Principal": "*", "Action": "s3:*", "Resource": arn}],
            }
        )
    ),
    opts=on_aws,
)

role = aws.iam.Role("cluster", assume_role_policy=TRUST, description=config.get_secret("note"), opts=on_aws)
attachment = aws.iam.RolePolicyAttachment(
    "cluster", role=role.name, policy_arn="arn:aws:iam::aws:policy/AmazonEKSClusterPolicy", opts=on_aws
)
cluster = aws.eks.Cluster(
    "small",
    role_arn=role.arn,
    version="1.36",
    vpc_config={"subnet_ids": [subnet.id for subnet in subnets]},
    opts=pulumi.ResourceOptions(provider=provider, depends_on=[attachment]),
)
template = aws.ec2.LaunchTemplate(
    "nodes",
    instance_type="g6e.2xlarge",
    update_default_version=True,
    user_data=base64.b64encode((config.get("userData") or "[settings]\n").encode()).decode(),
    block_device_mappings=[
        {"device_name": "/dev/xvdb", "ebs": {"volume_type": "gp3", "volume_size": config.get_int("disk") or 100}}
    ],
    metadata_options={"http_tokens": "required", "http_put_response_hop_limit": 1},
    opts=on_aws,
)
nodes = aws.eks.NodeGroup(
    "nodes",
    cluster_name=cluster.name,
    node_role_arn=role.arn,
    subnet_ids=[subnet.id for subnet in subnets],
    ami_type=config.get("amiType") or "BOTTLEROCKET_x86_64_NVIDIA",
    launch_template={"id": template.id, "version": template.latest_version.apply(str)},
    scaling_config={
        "min_size": 0,
        "max_size": config.get_int("most") or 4,
        "desired_size": config.get_int("desired") or 1,
    },
    labels={"purpose": config.get("purpose") or "test"},
    taints=[{"key": "nvidia.com/gpu", "value": "true", "effect": "NO_SCHEDULE"}],
    opts=pulumi.ResourceOptions(provider=provider, ignore_changes=["scalingConfig.desiredSize"]),
)
aws.autoscaling.Tag(
    "nodes",
    autoscaling_group_name=nodes.resources.apply(lambda found: found[0].autoscaling_groups[0].name),
    tag={"key": "k8s.io/cluster-autoscaler/node-template/label/purpose", "value": "x", "propagate_at_launch": False},
    opts=on_aws,
)

kubernetes = k8s.Provider(
    "kubernetes",
    kubeconfig=pulumi.Output.all(cluster.name, cluster.endpoint, cluster.certificate_authority.data).apply(
        lambda found: json.dumps(
            {
                "apiVersion": "v1",
                "kind": "Config",
                "clusters": [{"name": "c", "cluster": {"server": found[1], "certificate-authority-data": found[2]}}],
                "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
                "current-context": "c",
                "users": [
                    {
                        "name": "u",
                        "user": {
                            "exec": {
                                "apiVersion": "client.authentication.k8s.io/v1beta1",
                                "command": "aws",
                                "args": ["eks", "get-token", "--cluster-name", found[0], "--region", "us-west-2"],
                                "interactiveMode": "Never",
                            }
                        },
                    }
                ],
            }
        )
    ),
)
namespace = k8s.core.v1.Namespace(
    "apps", metadata={"name": "apps"}, opts=pulumi.ResourceOptions(provider=kubernetes, depends_on=[nodes])
)
pulumi.export("nodeGroup", nodes.node_group_name)
pulumi.export("defaultVersion", template.default_version)

"""Signing in: the one place where AWS clients are made, once account, clock and region were found to be right."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from functools import cached_property
from typing import TYPE_CHECKING, Any

import boto3
from botocore.config import Config
from botocore.exceptions import ClientError, EndpointConnectionError

from budget.problems import BadInput, bad_input, did_you_mean
from infra.accounts import partition_of
from scripts.account.refusals import AWS_ERRORS, credential_problem, in_words, is_denied, wrong_account
from scripts.failure import Failure

if TYPE_CHECKING:
    from mypy_boto3_autoscaling import AutoScalingClient
    from mypy_boto3_cloudwatch import CloudWatchClient
    from mypy_boto3_ec2 import EC2Client
    from mypy_boto3_ec2.type_defs import PaginatorConfigTypeDef
    from mypy_boto3_ecr import ECRClient
    from mypy_boto3_eks import EKSClient
    from mypy_boto3_elb import ElasticLoadBalancingClient
    from mypy_boto3_elbv2 import ElasticLoadBalancingv2Client
    from mypy_boto3_iam import IAMClient
    from mypy_boto3_kms import KMSClient
    from mypy_boto3_logs import CloudWatchLogsClient
    from mypy_boto3_pricing import PricingClient
    from mypy_boto3_resourcegroupstaggingapi import ResourceGroupsTaggingAPIClient
    from mypy_boto3_s3 import S3Client
    from mypy_boto3_scheduler import EventBridgeSchedulerClient
    from mypy_boto3_secretsmanager import SecretsManagerClient
    from mypy_boto3_service_quotas import ServiceQuotasClient
    from mypy_boto3_ssm import SSMClient
    from mypy_boto3_sts import STSClient
    from mypy_boto3_sts.type_defs import GetCallerIdentityResponseTypeDef

CONFIG = Config(
    # Slows down before AWS has to refuse, and tries again when it does: an audit of a busy account must end.
    retries={"mode": "adaptive", "total_max_attempts": 10},
    connect_timeout=10,
    read_timeout=60,
    max_pool_connections=16,
)
PAGES: PaginatorConfigTypeDef = {"PageSize": 200}
"""Of EC2, which puts everything into one answer unless a size is asked for, however much that is. 200 is the most that
each of its lists takes (EC2 API reference, MaxResults; launch templates have the least)."""
ALLOWED_SKEW_S = 240
"""A signature is refused beyond 5 minutes (AWS: signing requests); said before it comes to that."""
HOME: Mapping[str, str] = {"aws": "us-east-1", "aws-cn": "cn-north-1", "aws-us-gov": "us-gov-west-1"}
"""Partition → a region that is always on."""


class Clients:
    """Clients of one region, made when first asked for.

    Attributes:
        region: its name.
        account: number of the account they act in.
    """

    def __init__(self, session: boto3.Session, region: str, account: str, lock: threading.Lock) -> None:
        self.region, self.account = region, account
        self._session, self._lock = session, lock

    def _make(self, service: str) -> Any:  # noqa: ANN401 - each property below says what it is
        with self._lock:  # boto3 makes clients one at a time; the clients themselves may be shared
            return self._session.client(service, region_name=self.region, config=CONFIG)  # pyright: ignore[reportCallIssue, reportArgumentType, reportUnknownVariableType] - the stubs know literals alone

    @cached_property
    def autoscaling(self) -> AutoScalingClient:
        """EC2 Auto Scaling."""
        return self._make("autoscaling")

    @cached_property
    def cloudwatch(self) -> CloudWatchClient:
        """CloudWatch metrics."""
        return self._make("cloudwatch")

    @cached_property
    def ec2(self) -> EC2Client:
        """EC2 and VPC."""
        return self._make("ec2")

    @cached_property
    def ecr(self) -> ECRClient:
        """Elastic Container Registry."""
        return self._make("ecr")

    @cached_property
    def eks(self) -> EKSClient:
        """Elastic Kubernetes Service."""
        return self._make("eks")

    @cached_property
    def elb(self) -> ElasticLoadBalancingClient:
        """Classic load balancers."""
        return self._make("elb")

    @cached_property
    def elbv2(self) -> ElasticLoadBalancingv2Client:
        """Application, network and gateway load balancers."""
        return self._make("elbv2")

    @cached_property
    def iam(self) -> IAMClient:
        """Identities; the same from every region."""
        return self._make("iam")

    @cached_property
    def kms(self) -> KMSClient:
        """Keys."""
        return self._make("kms")

    @cached_property
    def logs(self) -> CloudWatchLogsClient:
        """CloudWatch Logs."""
        return self._make("logs")

    @cached_property
    def pricing(self) -> PricingClient:
        """The Price List API, which few regions have."""
        return self._make("pricing")

    @cached_property
    def tagging(self) -> ResourceGroupsTaggingAPIClient:
        """Tags of many services at once."""
        return self._make("resourcegroupstaggingapi")

    @cached_property
    def s3(self) -> S3Client:
        """S3."""
        return self._make("s3")

    @cached_property
    def scheduler(self) -> EventBridgeSchedulerClient:
        """EventBridge Scheduler."""
        return self._make("scheduler")

    @cached_property
    def secrets(self) -> SecretsManagerClient:
        """Secrets Manager."""
        return self._make("secretsmanager")

    @cached_property
    def quotas(self) -> ServiceQuotasClient:
        """Service Quotas."""
        return self._make("service-quotas")

    @cached_property
    def ssm(self) -> SSMClient:
        """Systems Manager parameters."""
        return self._make("ssm")

    @cached_property
    def sts(self) -> STSClient:
        """Who is asking."""
        return self._make("sts")


class Calls:
    """Counts requests; sits on the session, so that every client of it counts.

    Attributes:
        count: HTTP requests so far.
    """

    def __init__(self, session: boto3.Session) -> None:
        self.count = 0
        self._lock = threading.Lock()
        session.events.register("before-send", self._sent)

    def _sent(self, **_: object) -> None:
        with self._lock:
            self.count += 1


class Account:
    """An account that credentials were found for, and proven to be the expected one.

    Attributes:
        id: 12 digits.
        arn: who is signed in.
        partition: aws, aws-cn or aws-us-gov.
    """

    def __init__(self, session: boto3.Session, calls: Calls, *, account: str, arn: str, partition: str) -> None:
        self.id, self.arn, self.partition = account, arn, partition
        self._session, self._calls, self._lock = session, calls, threading.Lock()
        self._regions: dict[str, Clients] = {}

    @property
    def calls(self) -> int:
        """HTTP requests to AWS so far, retries included."""
        return self._calls.count

    @property
    def home(self) -> Clients:
        """Clients of a region that is always on: for what is not regional."""
        return self.region(HOME[self.partition])

    def region(self, name: str) -> Clients:
        """Clients of a region."""
        return self._regions.setdefault(name, Clients(self._session, name, self.id, self._lock))

    def regions(self) -> tuple[str, ...]:
        """Every region that is on in this account.

        Raises:
            ClientError: may not ask.
        """
        found = self.home.ec2.describe_regions(AllRegions=False)["Regions"]
        return tuple(sorted(name for region in found if (name := region.get("RegionName"))))


def sign_in(*, account: str | None, region: str, session: boto3.Session | None = None) -> Account:
    """Finds credentials and makes sure of account, clock and region before anything else is asked.

    Args:
        account: the account it must be; None takes whichever it is, for verbs that only look.
        region: must exist, and be on in the account.
        session: instead of boto3's own search for credentials.

    Raises:
        BadInput: no credentials, expired or wrong ones, another account, a clock that is off, a region that is off.
        Failure: AWS can't be reached.
    """
    try:
        session = session or boto3.Session()
        calls = Calls(session)
        partition = partition_of(region)
        _known_region(session, region)
        home = Clients(session, HOME[partition], "", threading.Lock())
        identity = home.sts.get_caller_identity()
        _check_clock(identity)
        if account is not None and identity["Account"] != account:
            raise wrong_account(account, identity["Account"], identity["Arn"])
        _check_region(home, region)
    except EndpointConnectionError as error:
        raise Failure(in_words(error)) from error
    except AWS_ERRORS as error:
        problem = credential_problem(error)
        if problem is None:
            raise Failure(f"signing in: {in_words(error)}") from error
        raise BadInput([problem]) from error
    return Account(session, calls, account=identity["Account"], arn=identity["Arn"], partition=partition)


def _known_region(session: boto3.Session, region: str) -> None:
    known = {name for partition in HOME for name in session.get_available_regions("ec2", partition_name=partition)}
    if region not in known:
        raise bad_input("region", f"{region!r} is no AWS region", did_you_mean(region, known))


def _check_clock(identity: GetCallerIdentityResponseTypeDef) -> None:
    sent = identity["ResponseMetadata"].get("HTTPHeaders", {}).get("date")
    if sent is None:
        return
    skew_s = abs((parsedate_to_datetime(sent) - datetime.now(UTC)).total_seconds())
    if skew_s > ALLOWED_SKEW_S:
        raise bad_input(
            "clock",
            f"this machine's time is {skew_s:,.0f} s away from AWS's",
            "Set the clock (NTP), then run it again.",
        )


def _check_region(home: Clients, region: str) -> None:
    """A region that is off answers as if the credentials were wrong, so it is asked about elsewhere."""
    try:
        found = home.ec2.describe_regions(RegionNames=[region], AllRegions=True)["Regions"]
    except ClientError as error:
        if is_denied(error):
            return
        raise
    if any(each.get("OptInStatus") == "not-opted-in" for each in found):
        raise bad_input(
            "region", f"{region} is off in this account", "Switch it on in the account's settings, or use another."
        )

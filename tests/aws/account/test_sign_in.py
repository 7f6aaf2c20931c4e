"""Nobody is let in unproven: credentials, account, clock and region are checked before anything else is asked."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import boto3
import pytest

from budget.problems import BadInput
from scripts import teardown
from scripts.account.session import Account, sign_in
from scripts.cli import run
from scripts.deployed.state import State
from scripts.failure import Failure
from tests.aws.account.audited import REGION, session_in
from tests.aws.account.front import ACCOUNT, Front

READS = ("Get", "Describe", "List")


def refused(**options: str) -> str:
    with pytest.raises(BadInput) as caught:
        sign_in(
            account=options.get("account", ACCOUNT), region=options.get("region", REGION), session=session_in(ACCOUNT)
        )
    (problem,) = caught.value.problems
    return str(problem)


def test_the_right_account_is_let_in(front: Front) -> None:
    account = sign_in(account=ACCOUNT, region=REGION, session=session_in(ACCOUNT))
    assert (account.id, account.partition, account.calls) == (ACCOUNT, "aws", 2)
    assert dict(front.calls) == {"sts.GetCallerIdentity": 1, "ec2.DescribeRegions": 1}
    assert isinstance(account, Account)


def test_no_credentials(front: Front, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    with pytest.raises(BadInput, match=r"AWS credentials: none that work: Unable to locate credentials.*aws sso login"):
        sign_in(account=ACCOUNT, region=REGION)
    assert not front.calls


@pytest.mark.parametrize(
    ("code", "message", "words"),
    [
        ("ExpiredToken", "The security token included in the request is expired", "AWS credentials: expired"),
        ("ExpiredTokenException", "The token has expired", "AWS credentials: expired"),
        (
            "InvalidClientTokenId",
            "The security token included in the request is invalid.",
            "not accepted (InvalidClient",
        ),
        ("AuthFailure", "AWS was not able to validate the provided access credentials", "not accepted (AuthFailure)"),
        (
            "SignatureDoesNotMatch",
            "Signature expired: 20261130T000000Z is now earlier than 20261130T001500Z",
            "clock: AWS refuses this machine's time: Signature expired",
        ),
        ("RequestTimeTooSkewed", "The difference is too large", "clock: AWS refuses this machine's time"),
    ],
)
def test_credentials_that_aws_refuses(front: Front, code: str, message: str, words: str) -> None:
    front.fail("sts.GetCallerIdentity", code=code, status=403, message=message, times=20)
    assert words in refused()


def test_a_profile_that_is_not_there(front: Front, monkeypatch: pytest.MonkeyPatch) -> None:
    del front
    monkeypatch.setenv("AWS_PROFILE", "nobody")
    with pytest.raises(BadInput, match="AWS_PROFILE: The config profile"):
        sign_in(account=ACCOUNT, region=REGION)


def test_another_account(front: Front) -> None:
    words = refused(account="444455556666")
    assert words == (
        f"AWS credentials: they are of account {ACCOUNT} (arn:aws:sts::{ACCOUNT}:user/moto), the stack is in "
        "444455556666. Use credentials of 444455556666. Nothing was changed."
    )
    assert dict(front.calls) == {"sts.GetCallerIdentity": 1}


@pytest.mark.parametrize("skew_s", [-1800.0, 600.0])
def test_a_clock_that_is_off(front: Front, skew_s: float) -> None:
    front.skew_s = skew_s
    assert "s away from AWS's. Set the clock (NTP)" in refused()


def test_a_clock_that_is_a_little_off_is_fine(front: Front) -> None:
    front.skew_s = 120.0
    assert sign_in(account=ACCOUNT, region=REGION, session=session_in(ACCOUNT)).id == ACCOUNT


def test_a_region_that_does_not_exist(front: Front) -> None:
    assert refused(region="us-west-9").startswith("region: 'us-west-9' is no AWS region. Did you mean us-west-2")
    assert not front.calls


def test_a_region_that_is_off(front: Front) -> None:
    assert "ap-east-1 is off in this account" in refused(region="ap-east-1")
    assert set(front.calls) == {"sts.GetCallerIdentity", "ec2.DescribeRegions"}


def test_a_permission_to_ask_about_regions_is_not_needed(front: Front) -> None:
    front.fail("ec2.DescribeRegions", code="UnauthorizedOperation", status=403, times=20)
    assert sign_in(account=ACCOUNT, region=REGION, session=session_in(ACCOUNT)).id == ACCOUNT


def test_nobody_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    with pytest.raises(Failure, match="AWS can't be reached"):
        sign_in(account=ACCOUNT, region=REGION, session=session_in(ACCOUNT))


CHANGING = [
    ["pause", "dev-llama-3-1-8b"],
    ["pause", "--all"],
    ["resume", "dev"],
    ["extend", "dev", "--by", "8h"],
    ["preflight", "dev"],
    ["teardown", "dev", "--yes"],
    ["teardown", "dev-llama-3-1-8b", "--yes"],
    ["teardown", "dev", "--dry-run"],
    ["teardown", "dev", "--yes", "--purge-weights", "--bucket", f"coldstart-dev-{ACCOUNT}-{REGION}"],
]


class NoStates:
    """A Pulumi backend with nothing in it; the real one takes the engine (tests/pulumi)."""

    def __init__(self, directory: Path) -> None:
        del directory

    def states(self) -> Mapping[str, State]:
        return {}

    def close(self) -> None:
        """Has nothing to close."""


def wrong_account(front: Front, monkeypatch: pytest.MonkeyPatch) -> None:
    del front
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIA444455556666")


def none(front: Front, monkeypatch: pytest.MonkeyPatch) -> None:
    del front
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)


def expired(front: Front, monkeypatch: pytest.MonkeyPatch) -> None:
    del monkeypatch
    front.fail("sts.GetCallerIdentity", code="ExpiredToken", status=403, message="The token is expired", times=20)


def a_clock_of_last_week(front: Front, monkeypatch: pytest.MonkeyPatch) -> None:
    del monkeypatch
    front.skew_s = 7 * 86_400.0


@pytest.mark.parametrize(
    ("credentials", "words", "asked"),
    [
        (wrong_account, "they are of account 444455556666", ["sts.GetCallerIdentity"]),
        (none, "AWS credentials: none that work", []),
        (expired, "AWS credentials: expired", ["sts.GetCallerIdentity"]),
        (a_clock_of_last_week, "s away from AWS's", ["sts.GetCallerIdentity"]),
    ],
    ids=lambda value: value.__name__ if callable(value) else "",
)
@pytest.mark.parametrize("arguments", CHANGING, ids=" ".join)
def test_no_verb_asks_anything_with_bad_credentials(
    front: Front,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    credentials: Callable[[Front, pytest.MonkeyPatch], None],
    words: str,
    asked: list[str],
) -> None:
    monkeypatch.setattr(teardown, "Backend", NoStates)
    credentials(front, monkeypatch)
    assert run(arguments) == 2
    said = capsys.readouterr()
    assert words in said.err
    assert "Traceback" not in said.err
    assert not said.out
    assert [operation for operation, _ in front.log] == asked


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["pause", "dev-lama-3-1-8b"], "dev-llama-3-1-8b"),
        (["resume", "prod"], "there is no stack file"),
        (["extend", "prod", "--by", "8h"], "there is no stack file"),
        (["extend", "dev", "--by", "soon"], "--by: 'soon' is no while"),
        (["extend", "dev", "--until", "2020-01-01"], "has passed"),
        (["extend", "dev"], "by how much is not clear"),
        (["extend", "dev", "--by", "8h", "--until", "2031-01-01"], "by how much is not clear"),
        (["pause"], "name a STACK, or --all"),
        (["pause", "dev", "--all"], "name a STACK, or --all"),
        (["preflight", "prod"], "there is no stack file"),
        (["audit"], "nothing says which region"),
        (["audit", "prod"], "there is no stack file"),
        (["audit", "dev", "--environment", "dev"], "not both"),
        (["prices", "--region", "us-west-2"], "--region goes with --refresh"),
        (["prices", "--refresh", "--region", "cn-north-1"], "the partition aws alone"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_bad_input_is_said_and_nothing_is_asked(
    front: Front, arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(arguments) == 2
    assert words in capsys.readouterr().err
    assert not [operation for operation in front.calls if not operation.partition(".")[2].startswith(READS)]


def test_without_a_named_account_the_credentials_own_is_meant(front: Front) -> None:
    del front
    assert (
        sign_in(account=None, region=REGION).id
        == boto3.client("sts", region_name=REGION).get_caller_identity()["Account"]
    )

"""Who is asking: the account was proven at sign-in, what is left is who it is."""

from __future__ import annotations

from collections.abc import Iterator

from scripts.checks.finding import Check, Finding, Subject, always, passed, warned


def _run(subject: Subject) -> Iterator[Finding]:
    arn = subject.account.arn
    if arn.endswith(":root"):
        yield warned(f"signed in as {arn}", "Use a role: whatever the root user does can't be narrowed.")
    else:
        yield passed(f"{arn}, in the account of the stack")


CHECK = Check(name="identity", permissions=always("sts:GetCallerIdentity", "ec2:DescribeRegions"), run=_run)

"""`coldstart preflight`: can this deployment exist, here, now? Asked before anything is paid for."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
from botocore.exceptions import ClientError
from rich.console import Console
from rich.table import Table

from budget.problems import BadInput
from infra.rules import check as check_settings
from infra.specs import model_specs
from infra.stack_file import STACKS, read
from scripts.account.refusals import AWS_ERRORS, AwsError, credential_problem, in_words, is_denied
from scripts.account.session import sign_in
from scripts.checks import CHECKS
from scripts.checks.finding import Check, Finding, Subject, Verdict, Wanted, unknown
from scripts.checks.policy import policy_text
from scripts.deployed.lazy import LazyBackend
from scripts.failure import Failure
from scripts.registry import HttpRegistry

WORKERS = 8
AGAIN = "Run it again; whoever was asked may have had a bad moment."
ACTIONS: Mapping[str, Sequence[str]] = {
    # Without the second S3 says of an object that is missing that it may not be read (S3 API reference, HeadObject).
    "HeadObject": ("s3:GetObject", "s3:ListBucket"),
}
"""Operation → the IAM actions that it takes, where they are not called the same."""
COLORS = {Verdict.PASS: "green", Verdict.WARN: "yellow", Verdict.FAIL: "red"}


@dataclass(frozen=True, kw_only=True)
class Answer:
    """One check and what it found."""

    check: Check
    findings: Sequence[Finding]

    @property
    def verdict(self) -> Verdict:
        """The worst of its findings."""
        verdicts = [finding.verdict for finding in self.findings]
        return next((worst for worst in (Verdict.FAIL, Verdict.WARN) if worst in verdicts), Verdict.PASS)


def wanted_of(name: str, directory: Path) -> Wanted:
    """The deployment that a stack file describes.

    Raises:
        BadInput: no such stack, or settings that can't be.
    """
    stack = read(name, directory)
    check_settings(stack)
    return Wanted(stack=stack, model=stack.model, specs=model_specs(stack, stack.model) if stack.model else None)


def preflight(subject: Subject, checks: Sequence[Check] = CHECKS) -> Sequence[Answer]:
    """Runs all checks side by side; one that fails says so and keeps none of the others from answering.

    Raises:
        BadInput: the credentials stopped working.
    """

    def ask(check: Check) -> Answer:
        return Answer(check=check, findings=list(_findings(check, subject)))

    with ThreadPoolExecutor(WORKERS) as pool:
        answers = list(pool.map(ask, checks))
    return [answer for answer in answers if answer.findings]


def _findings(check: Check, subject: Subject) -> Iterator[Finding]:
    """What a check finds. Where it can't go on, what it found so far stands, and what is left is not known."""
    try:
        yield from check.run(subject)
    except AWS_ERRORS as error:
        problem = credential_problem(error)
        if problem:
            raise BadInput([problem]) from error
        yield unknown(in_words(error), _fix(check, subject.wanted, error))
    except BadInput as error:
        for each in error.problems:
            yield unknown(f"{each.where}: {each.found}", each.fix)
    except Failure as failure:
        yield unknown(str(failure), AGAIN)


def _fix(check: Check, wanted: Wanted, error: AwsError) -> str:
    """What would make a check's question be answered: the actions that its denied operation takes, or patience."""
    if not (isinstance(error, ClientError) and is_denied(error)):
        return AGAIN
    allowed = sorted({action for each in check.permissions(wanted) for action in each.actions})
    operation = error.operation_name
    meant = ACTIONS.get(operation) or [action for action in allowed if action.partition(":")[2] == operation]
    return f"Allow {', '.join(meant or allowed)} (--print-policy)."


# ---- the verb -------------------------------------------------------------------------------------------------------


def document(name: str, answers: Sequence[Answer], calls: int) -> Mapping[str, Any]:
    """The answers as one JSON document."""
    return {
        "stack": name,
        "verdict": worst(answers).value,
        "checks": [
            {
                "name": answer.check.name,
                "verdict": answer.verdict.value,
                "findings": [
                    {"verdict": each.verdict.value, "found": each.found, "fix": each.fix} for each in answer.findings
                ],
            }
            for answer in answers
        ],
        "api_calls": calls,
    }


def worst(answers: Sequence[Answer]) -> Verdict:
    """The verdict on the whole."""
    verdicts = {answer.verdict for answer in answers}
    return next((each for each in (Verdict.FAIL, Verdict.WARN) if each in verdicts), Verdict.PASS)


@click.command()
@click.argument("stack")
@click.option("--print-policy", is_flag=True, help="Print the IAM policy that the checks take, and ask nothing.")
@click.option("--json", "as_json", is_flag=True, help="One JSON document.")
def command(stack: str, *, print_policy: bool, as_json: bool) -> int:
    """Ask AWS and the cluster whether STACK can exist before `pulumi up` is paid for.

    Exit code 1: at least one check fails.
    """
    wanted = wanted_of(stack, STACKS)
    if print_policy:
        click.echo(policy_text(CHECKS, wanted))
        return 0
    account = sign_in(account=wanted.stack.environment.account, region=wanted.region)
    clients, backend = account.region(wanted.region), LazyBackend(STACKS)
    try:
        subject = Subject(
            wanted=wanted,
            account=account,
            clients=clients,
            registry=HttpRegistry(),
            api=lambda: backend.api(wanted.stack.environment_name, clients, wanted.cluster),
        )
        answers = preflight(subject)
    finally:
        backend.close()
    if as_json:
        click.echo(json.dumps(document(stack, answers, account.calls), indent=2))
    else:
        _show(answers, Console())
    return 1 if worst(answers) is Verdict.FAIL else 0


def _show(answers: Sequence[Answer], console: Console) -> None:
    table = Table(box=None, pad_edge=False)
    for column in ("check", "verdict", "found", "fix"):
        table.add_column(column, overflow="fold")
    for answer in answers:
        for finding in answer.findings:
            color = COLORS[finding.verdict]
            table.add_row(answer.check.name, f"[{color}]{finding.verdict}[/]", finding.found, finding.fix)
    console.print(table)
    verdict = worst(answers)
    words = {
        Verdict.PASS: "Nothing stands in the way.",
        Verdict.WARN: "It can exist; read the warnings.",
        Verdict.FAIL: "It can't exist like this.",
    }
    console.print(f"[{COLORS[verdict]}]{words[verdict]}[/]")

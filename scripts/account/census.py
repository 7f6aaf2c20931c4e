"""A census of the account: every kind in every region asked for, page by page, keeping only what is or may be ours."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

from budget.problems import BadInput
from scripts.account.found import Found, Kind
from scripts.account.kinds import KINDS
from scripts.account.ownership import Owners, Unknown
from scripts.account.refusals import AWS_ERRORS, AwsError, credential_problem, in_words
from scripts.account.session import Account, Clients

WORKERS = 8
"""Regions looked at together. Within a region kinds follow each other, since the first prove the later ones."""

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Unseen:
    """A kind that could not be looked at somewhere, and why: what it hides is not known to be absent."""

    kind: str
    region: str
    why: str


@dataclass(kw_only=True)
class Census:
    """What is there.

    Attributes:
        found: ours, and what may be.
        foreign: kind → how many there are of others.
        unseen: what could not be looked at.
    """

    found: list[Found] = field(default_factory=list[Found])
    foreign: Counter[str] = field(default_factory=Counter[str])
    unseen: list[Unseen] = field(default_factory=list[Unseen])


def census(
    account: Account,
    regions: Sequence[str],
    owners: Owners,
    *,
    kinds: Iterable[Kind[Any]] = KINDS,
    say: Say = lambda _: None,
) -> Census:
    """Looks at every kind in every region.

    Args:
        account: signed in.
        regions: names; identities are looked at once.
        owners: what is known of our environments; learns more on the way.
        kinds: in an order in which proofs come before what they prove.
        say: told what is being looked at.

    Raises:
        BadInput: the credentials stopped working on the way.
    """
    listed = list(kinds)
    result, hinted = Census(), list[_Hinted]()
    for kind in listed:
        if kind.everywhere:
            _look(kind, account.home, owners, result, hinted)

    def one(region: str) -> None:
        clients = account.region(region)
        for kind in listed:
            if not kind.everywhere:
                say(f"{region}: {kind.name}")
                _look(kind, clients, owners, result, hinted)

    with ThreadPoolExecutor(WORKERS) as pool:
        list(pool.map(one, regions))
    _judge_again(hinted, owners, result)
    result.found.sort(key=lambda found: (found.region, found.kind, found.id))
    return result


@dataclass(frozen=True, slots=True)
class _Hinted:
    """Something that may be ours: judged once more when every environment has been met."""

    kind: Kind[Any]
    raw: Any
    clients: Clients


def _look(kind: Kind[Any], clients: Clients, owners: Owners, result: Census, hinted: list[_Hinted]) -> None:
    try:
        for raw in kind.listed(clients):
            verdict = kind.verdict(raw, owners)
            if verdict is None:
                result.foreign[kind.name] += 1
            elif isinstance(verdict, Unknown):
                hinted.append(_Hinted(kind, raw, clients))
            else:
                result.found.append(kind.found(raw, verdict, clients))
    except AWS_ERRORS as error:
        _unseen(kind, clients, error, result)


def _judge_again(hinted: Sequence[_Hinted], owners: Owners, result: Census) -> None:
    for each in hinted:
        verdict = each.kind.verdict(each.raw, owners)
        if verdict is None:
            result.foreign[each.kind.name] += 1
            continue
        try:
            result.found.append(each.kind.found(each.raw, verdict, each.clients))
        except AWS_ERRORS as error:
            _unseen(each.kind, each.clients, error, result)


def _unseen(kind: Kind[Any], clients: Clients, error: AwsError, result: Census) -> None:
    problem = credential_problem(error)
    if problem:
        raise BadInput([problem]) from error
    region = "global" if kind.everywhere else clients.region
    result.unseen.append(Unseen(kind.name, region, in_words(error)))

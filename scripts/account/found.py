"""What an audit finds: one thing in the account, and the kind of thing that it is."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Generic, TypeVar

from scripts.account.ownership import Ours, Owners, Unknown, Verdict
from scripts.account.session import Clients

Raw = TypeVar("Raw", bound=Mapping[str, Any])


@dataclass(frozen=True, kw_only=True, slots=True)
class Price:
    """What a thing costs.

    Attributes:
        usd_per_hour: None when the table has no price for it; never counted as free.
        note: how to read the figure.
    """

    usd_per_hour: float | None
    note: str = ""


FREE = Price(usd_per_hour=0.0)
UNPRICED = Price(usd_per_hour=None, note="no price in the table")


@dataclass(frozen=True, kw_only=True, slots=True)
class Found:
    """One thing.

    Attributes:
        kind: as `Kind.name`.
        id: as AWS shows it to a person.
        region: where; `global` for identities.
        created: None where AWS doesn't say.
        owner: the proof, or the hint.
        detail: what tells it apart, in a few words.
        price: per hour.
        pulumi_id: its id in a stack's state; None for what only controllers and AWS itself make.
        kept: it outlives its stack on purpose.
        remove: a command that removes it.
    """

    kind: str
    id: str
    region: str
    created: datetime | None
    owner: Ours | Unknown
    detail: str
    price: Price
    pulumi_id: str | None
    kept: bool = False
    remove: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Facts:
    """What a kind says of one thing that is ours, or may be; the rest of Found is the same for all kinds.

    Attributes:
        remove: arguments of `aws`, without the region.
    """

    id: str
    detail: str
    created: datetime | None
    price: Price
    remove: str
    pulumi_id: str | None = None
    kept: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class Kind(Generic[Raw]):
    """A kind of thing.

    Attributes:
        name: singular, as a person reads it.
        rule: how ours are known, in words.
        actions: IAM actions that looking needs.
        everywhere: asked once, and not in each region.
        listed: all of them in a region, whoever's they are, page by page.
        verdict: whose one is.
        facts: what there is to say of one; asked only of ours and of unknown ones, so it may make calls of its own.
        remove: deletes one by its id; None where only a person should.
    """

    name: str
    rule: str
    actions: tuple[str, ...]
    listed: Callable[[Clients], Iterator[Raw]]
    verdict: Callable[[Raw, Owners], Verdict]
    facts: Callable[[Raw, Clients], Facts]
    everywhere: bool = False
    remove: Callable[[Clients, str], None] | None = None

    def found(self, raw: Raw, owner: Ours | Unknown, clients: Clients) -> Found:
        """One of them that is ours, or may be."""
        facts = self.facts(raw, clients)
        where = "" if self.everywhere else f" --region {clients.region}"
        return Found(
            kind=self.name,
            id=facts.id,
            region="global" if self.everywhere else clients.region,
            created=facts.created,
            owner=owner,
            detail=facts.detail,
            price=facts.price,
            pulumi_id=facts.pulumi_id,
            kept=facts.kept,
            remove=f"aws {facts.remove}{where}",
        )

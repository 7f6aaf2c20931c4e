"""What exists in an account, which of it is ours, how it stands to live stacks, and what it costs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from budget.problems import BadInput
from infra.stack_file import names, read
from scripts.account.bill import Bill, total
from scripts.account.census import Census, Say, Unseen, census
from scripts.account.ownership import Ours, Owners
from scripts.account.session import Account
from scripts.account.standing import Judged, LiveStacks, Standing, judged
from scripts.deployed.state import State


@dataclass(frozen=True, kw_only=True)
class Scope:
    """What is audited.

    Attributes:
        stack, environment: only what belongs to it; None is everything of ours.
        account: that it must be; None is whichever is signed in.
        regions: names; empty is every region that is on.
    """

    stack: str | None
    environment: str | None
    account: str | None
    regions: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Audit:
    """What was found.

    Attributes:
        things: ours and unknown ones, in the scope.
        foreign: how many things belong to others.
        unseen: what could not be looked at; with any, the audit proves nothing.
        states_known: whether the backend said which stacks are alive.
        calls: requests to AWS.
    """

    account: str
    regions: Sequence[str]
    things: Sequence[Judged]
    foreign: int
    unseen: Sequence[Unseen]
    states_known: bool
    calls: int
    taken: datetime

    def of(self, standing: Standing) -> Sequence[Judged]:
        """Things of one standing."""
        return [thing for thing in self.things if thing.standing is standing]

    def bill(self, standing: Standing) -> Bill:
        """What things of one standing cost together."""
        return total(thing.found for thing in self.of(standing))

    @property
    def leaks(self) -> Sequence[Judged]:
        """What bills for no stack."""
        return [thing for thing in self.things if thing.leaks]

    @property
    def clean(self) -> bool:
        """Nothing leaks, and everything was seen."""
        return not self.leaks and not self.unseen and self.states_known


def audit(
    account: Account, scope: Scope, states: Mapping[str, State] | None, owners: Owners, say: Say = lambda _: None
) -> Audit:
    """Looks at the account.

    Args:
        account: signed in.
        scope: what of it.
        states: every stack's state; None when the backend could not be asked, and then nothing is known to be alive.
        owners: what is known of our environments.
        say: told what is being looked at.
    """
    regions = scope.regions or account.regions()
    seen: Census = census(account, regions, owners, say=say)
    live: LiveStacks = {name: state.ids for name, state in (states or {}).items() if state.live}
    things = [judged(found, live) for found in seen.found]
    return Audit(
        account=account.id,
        regions=regions,
        things=[thing for thing in things if _inside(thing, scope)],
        foreign=seen.foreign.total(),
        unseen=seen.unseen,
        states_known=states is not None,
        calls=account.calls,
        taken=datetime.now(UTC),
    )


def _inside(thing: Judged, scope: Scope) -> bool:
    owner = thing.found.owner
    if scope.stack is not None and scope.stack != scope.environment:
        return isinstance(owner, Ours) and owner.stack == scope.stack
    return scope.environment is None or owner.environment in (None, scope.environment)


def environments(directory: Path, states: Mapping[str, State] | None) -> set[str]:
    """Every environment that a stack file or a state names."""
    found = {state.environment for state in (states or {}).values() if state.environment}
    for name in names(directory):
        try:
            found.add(read(name, directory).environment_name)
        except BadInput:
            found.add(name)  # a file that doesn't parse may still be that of an environment
    return found

"""What controllers made and can no longer take away: found by proof, removed kind by kind, until none is left."""

from __future__ import annotations

from collections.abc import Sequence

from scripts.account.census import census
from scripts.account.found import Found
from scripts.account.kinds import (
    BY_NAME,
    classic_balancers,
    instances,
    interfaces,
    load_balancers,
    log_groups,
    security_groups,
    target_groups,
    volumes,
    vpcs,
)
from scripts.account.ownership import Ours, Owners
from scripts.account.refusals import AWS_ERRORS, in_words, is_denied, is_gone
from scripts.account.session import Account
from scripts.failure import Failure
from scripts.waiting import Patience, Say, wait_for

ORDER = (
    load_balancers.KIND,
    classic_balancers.KIND,
    target_groups.KIND,
    instances.KIND,
    volumes.KIND,
    interfaces.KIND,
    security_groups.KIND,
    log_groups.KIND,
)
"""Each of these lets go of what the next ones need to be free of."""


class Sweep:
    """Things that controllers made for one environment's cluster.

    Args:
        account: signed in.
        region: of the environment.
        environment: its name.
    """

    def __init__(self, account: Account, region: str, environment: str) -> None:
        self._account, self._region, self._environment = account, region, environment

    def found(self, *, namespace: str | None = None) -> Sequence[Found]:
        """What controllers made, in the order in which it can go.

        Nothing that a stack made is among it: that carries the stack's name and is the engine's to delete. Nothing of
        unknown owners is among it either.

        Args:
            namespace: only what was made for objects in it.

        Raises:
            Failure: something may not be looked at.
        """
        seen = census(self._account, [self._region], Owners([self._environment]), kinds=[vpcs.KIND, *ORDER])
        if seen.unseen:
            first = seen.unseen[0]
            raise Failure(f"{first.kind}s in {first.region} can't be seen: {first.why}")
        mine = [found for found in seen.found if self._is_mine(found, namespace)]
        rank = {kind.name: index for index, kind in enumerate(ORDER)}
        return sorted(mine, key=lambda found: (rank[found.kind], found.id))

    def remove(self, *, patience: Patience, say: Say) -> int:
        """Removes all of it, trying again while one thing still holds another; how many things went.

        Raises:
            TimedOut: something stayed; says what and why.
            Failure: something may not be removed.
        """
        refusals: dict[str, str] = {}
        gone: set[str] = set()

        def remaining() -> Sequence[str]:
            left = self.found()
            for found in left:
                say(f"removing {found.kind} {found.id} ({found.owner.why})")
                why = self._try(found)
                refusals.pop(found.id, None)
                if why:
                    refusals[found.id] = why
                else:
                    gone.add(found.id)
            return [f"{found.kind} {found.id}" for found in left]

        wait_for(
            "leftovers of controllers to be gone",
            remaining,
            patience=patience,
            say=say,
            holders=lambda _: [f"{name}: {why}" for name, why in sorted(refusals.items())],
            go_on="remove what holds them (the commands are in `coldstart audit`), then run the same command again",
        )
        return len(gone)

    def _is_mine(self, found: Found, namespace: str | None) -> bool:
        owner = found.owner
        if not isinstance(owner, Ours) or owner.environment != self._environment or owner.stack is not None:
            return False
        return found.kind != vpcs.KIND.name and (namespace is None or owner.namespace == namespace)

    def _try(self, found: Found) -> str | None:
        remove = BY_NAME[found.kind].remove
        if remove is None:
            return "only a person should remove it"
        try:
            remove(self._account.region(self._region), found.id)
        except AWS_ERRORS as error:
            if is_denied(error):
                raise Failure(f"removing {found.kind} {found.id}: {in_words(error)}") from error
            return None if is_gone(error) else in_words(error)
        return None

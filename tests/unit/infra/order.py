"""What a recorded resource waits for, as the engine orders it."""

from __future__ import annotations

from infra.offline import Evaluation, Recorded


def waits_for(found: Evaluation, resource: Recorded) -> set[str]:
    """URNs that are created before a resource, and deleted after it: its dependencies, its parent, and theirs.

    A child waits for its component to be registered, which waits for what the component depends on.
    """
    by_urn = {one.urn: one for one in found.resources}
    waited: set[str] = set()
    ahead = [resource]
    while ahead:
        one = ahead.pop()
        for urn in {*one.depends_on, one.parent} - waited - {""}:
            waited.add(urn)
            if urn in by_urn:
                ahead.append(by_urn[urn])
    return waited

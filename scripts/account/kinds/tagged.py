"""Things whose tags alone say whose they are, and which AWS lists with their tags: most of EC2."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from scripts.account.ownership import Owners, Verdict, tags_of


def by_tags(listed: Mapping[str, Any], owners: Owners) -> Verdict:
    """Whose it is, by the tags that came with it."""
    return owners.by_tags(tags_of(listed.get("Tags")))

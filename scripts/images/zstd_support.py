"""Which nodes unpack zstd layers."""

from __future__ import annotations

from budget.problems import bad_input

CONTAINERD = (1, 5)
"""containerd reads zstd layers since 1.5 (its release notes); SOCI parallel pull since it exists."""
SOCI_RELEASE = (1, 44, 0)
"""The first Bottlerocket with SOCI: containerd 2.1 and a snapshotter whose parallel pull takes gzip and zstd."""


def refuse_unsupported_zstd(release: str | None) -> None:
    """A node that could not unpack what is asked for.

    Args:
        release: Bottlerocket release of the nodes; None when no stack is named.

    Raises:
        BadInput: its containerd or SOCI can't.
    """
    if release is None:
        return
    if tuple(int(part) for part in release.split(".")) < SOCI_RELEASE:
        least = ".".join(map(str, SOCI_RELEASE))
        raise bad_input(
            "--codec zstd", f"the nodes run Bottlerocket {release}", f"zstd with SOCI needs {least}; use gzip."
        )

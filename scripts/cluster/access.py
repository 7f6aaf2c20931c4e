"""How a cluster is reached: from what the environment's stack exports, else from what EKS says."""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

from botocore.exceptions import ClientError

from infra.cluster import kubeconfig
from scripts.account.refusals import is_gone
from scripts.account.session import Clients
from scripts.deployed.state import State


@dataclass(frozen=True, kw_only=True, slots=True)
class Access:
    """Where a cluster's API server is.

    Attributes:
        cluster: name in EKS.
        certificate_authority: base64, as EKS gives it.
    """

    cluster: str
    endpoint: str
    certificate_authority: str
    region: str

    @property
    def kubeconfig(self) -> str:
        """The same kubeconfig that the program's provider uses, so that both are the same person to the cluster."""
        return kubeconfig(
            cluster=self.cluster,
            endpoint=self.endpoint,
            certificate_authority=self.certificate_authority,
            region=self.region,
        )


def from_state(state: State) -> Access | None:
    """Access as an environment's stack exports it; None when it has exported nothing."""
    outputs = state.outputs
    found = [outputs.get(name) for name in ("cluster", "endpoint", "certificate_authority", "region")]
    if not all(isinstance(each, str) and each for each in found):
        return None
    cluster, endpoint, authority, region = cast("list[str]", found)
    return Access(cluster=cluster, endpoint=endpoint, certificate_authority=authority, region=region)


def from_eks(clients: Clients, cluster: str) -> Access | None:
    """Access as EKS describes it; None when there is no such cluster.

    Raises:
        ClientError, BotoCoreError: EKS refuses, or does not answer.
    """
    try:
        found = clients.eks.describe_cluster(name=cluster)["cluster"]
    except ClientError as error:
        if is_gone(error):
            return None
        raise
    endpoint, authority = found.get("endpoint", ""), found.get("certificateAuthority", {}).get("data", "")
    if not endpoint:
        return None
    return Access(cluster=cluster, endpoint=endpoint, certificate_authority=authority, region=clients.region)

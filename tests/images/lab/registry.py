"""A real registry on loopback: Debian's docker-registry, and a front that hands out its blobs at a limited rate."""

from __future__ import annotations

import urllib.error
import urllib.request
from pathlib import Path
from types import TracebackType
from typing import Self

from scripts.rehearsal.ports import free_ports
from tests.images.lab.build import tool
from tests.toolchain.engines import Server
from tests.toolchain.waiting import wait_until

REGISTRY = """version: 0.1
storage: {{filesystem: {{rootdirectory: {root}}}, delete: {{enabled: true}}}}
http: {{addr: 127.0.0.1:{port}}}
log: {{level: warn, accesslog: {{disabled: true}}}}
"""


class LabRegistry:
    """Pushes go to `push`, pulls come from `pull` at `connection_bytes_s` each; 0 is no limit."""

    def __init__(self, folder: Path, *, connection_bytes_s: int = 0) -> None:
        self._folder, self._rate = folder, connection_bytes_s
        self._servers: list[Server] = []
        self.push = self.pull = ""

    def __enter__(self) -> Self:
        self._folder.mkdir(parents=True, exist_ok=True)
        root = self._folder / "storage"
        behind, front = free_ports(2)
        config = self._folder / "registry.yml"
        config.write_text(REGISTRY.format(root=root, port=behind))
        pace = [tool("pace"), "serve", "-listen", f"127.0.0.1:{front}", "-behind", f"127.0.0.1:{behind}"]
        pace += ["-storage", str(root), "-connection", str(self._rate)]
        for name, argv in (("docker-registry", [tool("docker-registry"), "serve", str(config)]), ("pace", pace)):
            self._servers.append(Server(name, argv, folder=self._folder))
        self.push, self.pull = f"127.0.0.1:{behind}", f"127.0.0.1:{front}"
        for address in (self.push, self.pull):
            wait_until(lambda address=address: _answers(address), what=f"the registry at {address}")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for server in reversed(self._servers):
            server.stop()


def _answers(address: str) -> bool:
    try:
        with urllib.request.urlopen(f"http://{address}/v2/", timeout=5) as answer:
            return answer.status == 200
    except (urllib.error.URLError, OSError):
        return False

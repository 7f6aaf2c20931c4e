"""A real Prometheus: scrapes one target on loopback several times a second, evaluates the shipped alert rules."""

from __future__ import annotations

import json
import shutil
import urllib.parse
import urllib.request
from pathlib import Path
from typing import Any, Self

import yaml

from tests.toolchain.engines import Server, free_port
from tests.toolchain.waiting import wait_until

RULES = Path(__file__).resolve().parents[2] / "docs" / "metrics" / "alerts.yaml"


class Prometheus:
    """Running from entry to exit."""

    def __init__(self, folder: Path, target_port: int) -> None:
        self.folder, self._port = folder, free_port()
        config = {
            "global": {"scrape_interval": "250ms", "scrape_timeout": "200ms", "evaluation_interval": "250ms"},
            "rule_files": [str(RULES)],
            "scrape_configs": [
                {"job_name": "coldstart-recorder", "static_configs": [{"targets": [f"127.0.0.1:{target_port}"]}]}
            ],
        }
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "prometheus.yml").write_text(yaml.safe_dump(config))

    def __enter__(self) -> Self:
        binary = shutil.which("prometheus")
        assert binary, "Prometheus is not installed: apt-get install prometheus"
        self._server = Server(
            "prometheus",
            [
                binary,
                f"--config.file={self.folder / 'prometheus.yml'}",
                f"--storage.tsdb.path={self.folder / 'data'}",
                f"--web.listen-address=127.0.0.1:{self._port}",
            ],
            folder=self.folder,
        )
        wait_until(self._ready, what=lambda: f"Prometheus is ready:\n{self._server.tail()}")
        return self

    def __exit__(self, *_: object) -> None:
        self._server.stop()

    def _ready(self) -> bool:
        self._server.check()
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self._port}/-/ready", timeout=5):
                return True
        except OSError:
            return False

    def _get(self, path: str, **query: str) -> Any:
        url = f"http://127.0.0.1:{self._port}/api/v1/{path}?{urllib.parse.urlencode(query)}"
        with urllib.request.urlopen(url, timeout=10) as answer:
            return json.loads(answer.read())["data"]

    def query(self, expression: str) -> list[dict[str, Any]]:
        """The samples of an instant query."""
        return self._get("query", query=expression)["result"]

    def firing(self) -> set[tuple[str, str]]:
        """Alerts that fire now: name and phase (empty where it has none)."""
        return {
            (alert["labels"]["alertname"], alert["labels"].get("phase", ""))
            for alert in self._get("alerts")["alerts"]
            if alert["state"] == "firing"
        }

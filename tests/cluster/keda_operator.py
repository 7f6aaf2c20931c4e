"""KEDA's own operator as a process, and a vLLM metrics page that it reads by the Service's own address."""

from __future__ import annotations

import os
import shutil
import threading
from collections.abc import Generator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from tests.toolchain.certificates import write_certificates
from tests.toolchain.control_plane import SERVICE_ADDRESS, ControlPlane
from tests.toolchain.engines import TOOLS, Server, engine, free_port
from tests.toolchain.waiting import wait_until

NAMESPACE = "keda"


class MetricsPage:
    """What a vLLM engine would answer, behind its Service.

    It is an HTTP proxy: the operator is told to use it, so that it asks for the rendered address, which only a
    cluster's own names and network lead to.
    """

    def __init__(self) -> None:
        self._text: str | None = None
        self._asked: list[str] = []
        self._changed = threading.Condition()
        page = self

        class Answer(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                text = page.ask(self.path)
                body = (text or "").encode()
                # What a proxy says when nothing listens behind an address.
                self.send_response(502 if text is None else 200)
                self.send_header("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's name
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Answer)
        self.address = f"http://127.0.0.1:{self._server.server_port}"

    @classmethod
    @contextmanager
    def served(cls) -> Generator[MetricsPage]:
        """A page that nobody can reach yet."""
        page = cls()
        thread = threading.Thread(target=page._server.serve_forever, args=(0.05,))
        thread.start()
        try:
            yield page
        finally:
            page._server.shutdown()
            thread.join()
            page._server.server_close()

    def ask(self, url: str) -> str | None:
        """One question of the operator's; the page, or nothing when no pod is behind the Service."""
        with self._changed:
            self._asked.append(url)
            self._changed.notify_all()
            return self._text

    def shows(self, model: str, *, waiting: int, running: int) -> None:
        """From now on an engine answers, with these gauges (as vLLM 0.32 prints them)."""
        with self._changed:
            self._text = "".join(
                f"# HELP vllm:{name} {words}\n# TYPE vllm:{name} gauge\n"
                f'vllm:{name}{{engine="0",model_name="{model}"}} {float(value)}\n'
                for name, words, value in (
                    ("num_requests_running", "Number of requests in model execution batches.", running),
                    ("num_requests_waiting", "Number of requests waiting to be processed.", waiting),
                )
            )

    def goes_away(self) -> None:
        """From now on no pod is behind the Service: none is there, or none is Ready."""
        with self._changed:
            self._text = None

    @property
    def asked(self) -> set[str]:
        """Every address that was asked for."""
        with self._changed:
            return set(self._asked)

    def wait_for_questions(self, count: int, patience_s: float = 120.0) -> None:
        """Waits until the operator has asked so often from now on."""
        with self._changed:
            wanted = len(self._asked) + count
            if not self._changed.wait_for(lambda: len(self._asked) >= wanted, patience_s):
                raise TimeoutError(f"the operator asked {len(self._asked) - wanted + count} times, not {count}")


@contextmanager
def keda_operator(plane: ControlPlane, folder: Path, proxy: str) -> Generator[Server]:
    """The operator on a control plane, asking for metrics through `proxy`."""
    plane.define(TOOLS / "keda")
    plane.api.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}})
    made = write_certificates(folder / "made", SERVICE_ADDRESS)
    certificates = folder / "certificates"
    certificates.mkdir()
    for name, source in (("ca.crt", made.authority), ("tls.crt", made.server), ("tls.key", made.server_key)):
        shutil.copyfile(source, certificates / name)
    probes = free_port()
    server = Server(
        "keda",
        [
            str(engine("keda-operator")),
            "--leader-elect=false",
            "--enable-cert-rotation=false",
            f"--cert-dir={certificates}",
            f"--ca-dir={certificates}",
            f"--metrics-bind-address=127.0.0.1:{free_port()}",
            f"--metrics-service-bind-address=127.0.0.1:{free_port()}",
            f"--health-probe-bind-address=127.0.0.1:{probes}",
        ],
        folder=folder,
        env={
            "PATH": os.environ["PATH"],
            "KUBECONFIG": str(plane.kubeconfig),
            "KEDA_CLUSTER_OBJECT_NAMESPACE": NAMESPACE,
            "POD_NAMESPACE": NAMESPACE,
            "WATCH_NAMESPACE": "",
            "HTTP_PROXY": proxy,
        },
    )
    try:

        def started() -> bool:
            server.check()
            return "Starting workers" in server.log.read_text(errors="replace")

        wait_until(started, what=lambda: f"the operator works:\n{server.tail()}", patience_s=90)
        yield server
    finally:
        server.stop()

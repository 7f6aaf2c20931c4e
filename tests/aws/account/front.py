"""A loopback server in front of moto: it answers what moto lacks, fails on purpose, counts, and passes on the rest.

Answers are plain dictionaries. They are checked against the service's own model and written in its own protocol, so the
client under test parses the same bytes that AWS would send. Faults come in the wire format of their protocol too.

    with Front.before(moto.endpoint) as front:
        front.answers["ec2.DescribeCapacityReservations"] = lambda request: {"CapacityReservations": [...]}
        front.fail("ec2.DeleteVolume", code="RequestLimitExceeded", status=503, times=2)
"""

from __future__ import annotations

import http
import http.client
import json
import re
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar, Self
from urllib.parse import parse_qs, urlsplit

from botocore.validate import ParamValidator
from moto.core.model import OperationModel, ServiceModel
from moto.core.serialize import get_serializer_class
from moto.core.utils import get_service_model

Answer = Callable[[Mapping[str, Any]], Mapping[str, Any]]

SCOPE = re.compile(r"Credential=[^/]+/\d+/(?P<region>[^/]+)/(?P<service>[^/]+)/aws4_request")
SERVICES = {
    "tagging": "resourcegroupstaggingapi",
    "servicequotas": "service-quotas",
    "monitoring": "cloudwatch",
}
"""Signing name → botocore's name, where they differ."""
ACCOUNT = "111122223333"
"""The account of the shipped stack files, an example number of AWS."""
ACCOUNT_OF_KEY = re.compile(r"Credential=AKIA(\d{12})")
"""An access key that names its account; any other is of the account above."""
CLASSIC_VERSION = "2012-06-01"
HOP_BY_HOP = frozenset({"connection", "transfer-encoding", "keep-alive", "content-length", "date", "server"})


@dataclass
class Fault:
    """One planned failure of an operation; counted down.

    Attributes:
        operation: `service.Operation`.
        when: only requests whose text it is found in.
    """

    operation: str
    code: str
    status: int
    message: str
    times: int
    when: str


NO_CLUSTER = Fault(
    operation="",
    code="ResourceNotFoundException",
    status=404,
    message="No cluster found for that name.",
    times=1,
    when="",
)


class Front:
    """The server.

    Attributes:
        endpoint: for AWS_ENDPOINT_URL.
        answers: `service.Operation` → what it answers in moto's place.
        calls: `service.Operation` → how often it was asked.
        log: the operations in order, with their request as text.
        skew_s: how far AWS's clock is ahead of ours.
    """

    def __init__(self, upstream: str) -> None:
        self.answers: dict[str, Answer] = {}
        self.calls: Counter[str] = Counter()
        self.log: list[tuple[str, str]] = []
        self.skew_s = 0.0
        self.on_call: Callable[[str, str], None] = lambda _operation, _request: None
        self._faults: list[Fault] = []
        self._lock = threading.Lock()
        self.upstream = urlsplit(upstream)
        handler = type("Handler", (_Handler,), {"front": self})
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self._server.daemon_threads = True
        self.endpoint = f"http://127.0.0.1:{self._server.server_address[1]}"

    @classmethod
    @contextmanager
    def before(cls, upstream: str) -> Iterator[Self]:
        """Runs it while the block runs."""
        front = cls(upstream)
        thread = threading.Thread(target=front._server.serve_forever, daemon=True)
        thread.start()
        try:
            yield front
        finally:
            front._server.shutdown()
            front._server.server_close()
            thread.join()

    def fail(
        self,
        operation: str,
        *,
        code: str,
        status: int = 400,
        message: str = "on purpose",
        times: int = 1,
        when: str = "",
    ) -> None:
        """Plans a failure."""
        with self._lock:
            self._faults.append(Fault(operation, code, status, message, times, when))

    def strike(self, operation: str, request: str) -> Fault | None:
        """The failure that is due, counted down."""
        with self._lock:
            for fault in self._faults:
                if fault.times and fault.operation == operation and fault.when in request:
                    fault.times -= 1
                    return fault
        return None

    @property
    def pending(self) -> list[Fault]:
        """Failures that never came."""
        return [fault for fault in self._faults if fault.times]

    def heard(self, operation: str, request: str) -> None:
        """Counts a call."""
        with self._lock:
            self.calls[operation] += 1
            self.log.append((operation, request))
        self.on_call(operation, request)


class _Handler(BaseHTTPRequestHandler):
    front: ClassVar[Front]
    protocol_version = "HTTP/1.1"

    def _serve(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        service = self._service(body)
        operation = self._operation(service, body)
        named, request = f"{service}.{operation}", f"{self.command} {self.path} {body.decode(errors='replace')}"
        self.front.heard(named, request)
        fault = self.front.strike(named, request)
        if fault:
            self._send(*_error(service, fault))
        elif named in self.front.answers:
            self._send(*_answer(service, operation, self.front.answers[named](self._parameters(service, body))))
        else:
            self._pass_on(body)

    do_GET = do_POST = do_PUT = do_DELETE = do_HEAD = do_PATCH = _serve  # noqa: N815 - names of the base class

    def date_time_string(self, timestamp: float | None = None) -> str:
        """The Date header of an answer."""
        return super().date_time_string((timestamp or time.time()) + self.front.skew_s)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's name
        """Says nothing."""

    def _service(self, body: bytes) -> str:
        scope = SCOPE.search(self.headers.get("Authorization", ""))
        name = scope["service"] if scope else ""
        if name == "elasticloadbalancing":
            return "elb" if CLASSIC_VERSION.encode() in body else "elbv2"
        return SERVICES.get(name, name)

    def _operation(self, service: str, body: bytes) -> str:
        target = self.headers.get("X-Amz-Target")
        if target:
            return target.rpartition(".")[2]
        action = parse_qs(body.decode(errors="replace")).get("Action")
        if action:
            return action[0]
        return (
            _by_path(service, self.command, urlsplit(self.path).path)
            if service in {"eks", "scheduler"}
            else self.command
        )

    def _parameters(self, service: str, body: bytes) -> Mapping[str, Any]:
        if self.headers.get("X-Amz-Target"):
            return json.loads(body or b"{}")
        query = parse_qs(urlsplit(self.path).query) | parse_qs(body.decode(errors="replace"))
        return {name: values[0] for name, values in query.items()} | {
            "path": urlsplit(self.path).path,
            "service": service,
        }

    def _pass_on(self, body: bytes) -> None:
        upstream = http.client.HTTPConnection(self.front.upstream.hostname or "", self.front.upstream.port, timeout=120)
        headers = {name: value for name, value in self.headers.items() if name.lower() not in ("host", "connection")}
        key = ACCOUNT_OF_KEY.search(self.headers.get("Authorization", ""))
        headers["x-moto-account-id"] = key[1] if key else ACCOUNT
        try:
            # The host that the client asked for: moto finds a bucket or a service by it.
            upstream.request(self.command, self.path, body=body, headers=headers | {"Host": self.headers["Host"]})
            answer = upstream.getresponse()
            content = answer.read()
            if answer.status == http.HTTPStatus.INTERNAL_SERVER_ERROR and self.path.startswith("/clusters/"):
                self._send(*_error("eks", NO_CLUSTER))  # moto stumbles over a cluster that is gone
                return
            self.send_response(answer.status)
            for name, value in answer.getheaders():
                if name.lower() not in HOP_BY_HOP:
                    self.send_header(name, value)
            length = answer.getheader("Content-Length") if self.command == "HEAD" else None
            self.send_header("Content-Length", length or str(len(content)))
            self.end_headers()
            self.wfile.write(content)
        finally:
            upstream.close()

    def _send(self, status: int, headers: Mapping[str, str], body: bytes) -> None:
        self.send_response(status)
        for name, value in headers.items():
            if name.lower() != "content-length":
                self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":  # its answer ends with the headers, an error's code included
            self.wfile.write(body)


@cache
def _model(service: str) -> ServiceModel:
    return get_service_model(service)


def _by_path(service: str, method: str, path: str) -> str:
    """The operation of a REST request; the longest template that fits is meant."""
    model, best = _model(service), ("", "")
    for name in model.operation_names:
        http_of = model.operation_model(name).http
        template = http_of["requestUri"].partition("?")[0]
        shape = "[^/]+".join(re.escape(part) for part in re.split(r"\{[^}]+\}", template))
        if http_of["method"] == method and re.fullmatch(shape, path) and len(template) > len(best[1]):
            best = (name, template)
    return best[0]


def _answer(service: str, operation: str, result: Mapping[str, Any]) -> tuple[int, Mapping[str, str], bytes]:
    model: OperationModel = _model(service).operation_model(operation)
    shape = model.output_shape
    if shape is not None:
        report = ParamValidator().validate(result, shape)
        assert not report.has_errors(), report.generate_report()
    serializer = get_serializer_class(service, _protocol(service))(model)
    written = serializer.serialize(dict(result))
    body = written["body"]
    return written["status_code"], written["headers"], body.encode() if isinstance(body, str) else body


def _protocol(service: str) -> str:
    return str(_model(service).metadata["protocol"])


def _error(service: str, fault: Fault) -> tuple[int, Mapping[str, str], bytes]:
    code, message = fault.code, fault.message
    match _protocol(service):
        case "ec2":
            text = (
                f"<Response><Errors><Error><Code>{code}</Code><Message>{message}</Message></Error></Errors></Response>"
            )
        case "query":
            text = (
                f"<ErrorResponse><Error><Type>Sender</Type><Code>{code}</Code><Message>{message}</Message></Error>"
                "<RequestId>1</RequestId></ErrorResponse>"
            )
        case "rest-xml":
            text = f"<Error><Code>{code}</Code><Message>{message}</Message></Error>"
        case _:
            body = json.dumps({"__type": code, "message": message}).encode()
            return fault.status, {"Content-Type": "application/json", "x-amzn-ErrorType": code}, body
    return fault.status, {"Content-Type": "text/xml"}, text.encode()

"""`pulumi-resource-aws`: the engine starts this program, reads the port from its first line, and speaks gRPC to it."""

import os
import signal
import sys
import threading
from concurrent import futures
from pathlib import Path

import grpc
from pulumi.runtime.proto import provider_pb2_grpc

# Run as a file, by a launcher on PATH: the tests' folder is not importable until this line.
sys.path[0] = str(Path(__file__).resolve().parents[2])

from tests.standin.kinds import kinds  # noqa: E402 - needs the line above
from tests.standin.provider import Provider  # noqa: E402 - as above
from tests.standin.sdk import inputs_of  # noqa: E402 - as above
from tests.standin.translation import operation  # noqa: E402 - as above

LARGEST_MESSAGE = 400 * 1024 * 1024  # what the engine itself allows


def load_tables() -> None:
    """Loads what every type needs from the SDK and the service models, while the engine still starts the program."""
    for kind in kinds().values():
        operation(kind.create)
        inputs_of(kind.sdk)


def main() -> None:
    """Serves until the engine ends the process."""
    server = grpc.server(
        futures.ThreadPoolExecutor(16),
        options=[
            ("grpc.max_receive_message_length", LARGEST_MESSAGE),
            ("grpc.max_send_message_length", LARGEST_MESSAGE),
        ],
    )
    provider_pb2_grpc.add_ResourceProviderServicer_to_server(Provider(os.environ), server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    # The engine interrupts its plugins when it has done, and waits for them. Nothing is left to tidy up.
    for ending in (signal.SIGINT, signal.SIGTERM):
        signal.signal(ending, lambda *_: os._exit(0))
    print(port, flush=True)  # noqa: T201 - the engine reads it
    threading.Thread(target=load_tables, daemon=True).start()
    server.wait_for_termination()


main()

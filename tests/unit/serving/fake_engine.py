"""An engine that only talks: vLLM's log lines and HTTP API from a script, for what a real one does too rarely.

    python fake_engine.py --script FILE ...

The script is a JSON object. `steps` run before it serves, in order: `["out", text]`, `["err", text]` write as they
stand, `["wait", FILE]` waits until a file exists, `["pause", SECONDS]` waits (for benchmarks alone), `["compile", FILE,
SIZE]` reports a cache hit if that file exists and else writes it and reports a miss, `["exit-if", FILE, CODE]` ends if
a file exists, `["exit", CODE]`,
`["kill", SIGNAL]`, `["orphan"]` leaves a grandchild that ends after its parent. Beside `steps`: `port`, `token_ids` of
every answer, `logprob`, `margin`, `slow` (FILE: a completion whose prompt is `slow` is answered once that exists),
`latencies_s` (of completions, in turn, the last one for ever), `refuse` (path → status), `ignore_sigterm`, `exit_code`,
`dead` (FILE: once it exists /health answers 503), `requests` (FILE that gets one line per request).
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

SCRIPT = json.loads(Path(sys.argv[sys.argv.index("--script") + 1]).read_text())
TOKENS = SCRIPT.get("token_ids", [5, 6, 7, 8])
LATENCIES = SCRIPT.get("latencies_s", [0.0])
served = threading.Lock()
turn = 0


def wait_for(path: str) -> None:
    while not Path(path).exists():
        time.sleep(0.01)


def write(stream: str, text: str) -> None:
    target = sys.stdout if stream == "out" else sys.stderr
    target.buffer.write(text.encode())
    target.buffer.flush()


def compile_once(artefact: Path, size: int) -> None:
    if artefact.exists():
        write("out", f"Directly load AOT compilation from path {artefact}\n")
        return
    artefact.parent.mkdir(parents=True, exist_ok=True)
    artefact.write_bytes(os.urandom(size))
    write("out", f"saved AOT compiled function to {artefact}\n")


def exit_if(path: str, code: int) -> None:
    if Path(path).exists():
        os._exit(code)


def leave_orphan() -> None:
    if os.fork() == 0:
        if os.fork() == 0:
            time.sleep(0.05)
        os._exit(0)
    os.wait()


STEPS = {
    "out": lambda text: write("out", text),
    "err": lambda text: write("err", text),
    "wait": wait_for,
    "pause": time.sleep,
    "compile": lambda path, size: compile_once(Path(path), size),
    "exit-if": exit_if,
    "exit": os._exit,
    "kill": lambda signum: os.kill(os.getpid(), signum),
    "orphan": leave_orphan,
}


class Api(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: object) -> None:
        pass

    def answer(self, status: int, document: object) -> None:
        body = json.dumps(document).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self) -> None:
        if self.path == "/health":
            dead = Path(SCRIPT.get("dead", "/nowhere")).exists()
            self.answer(503 if dead else 200, {})
        else:
            self.answer(200, {"data": [{"id": "tiny", "max_model_len": 128}]})

    def do_POST(self) -> None:
        global turn  # noqa: PLW0603 - one counter of one process
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if SCRIPT.get("requests"):
            with served, Path(SCRIPT["requests"]).open("a") as file:
                file.write(json.dumps({"path": self.path, **request}) + "\n")
        if self.path in SCRIPT.get("refuse", {}):
            self.answer(SCRIPT["refuse"][self.path], {"error": "refused"})
        elif self.path == "/tokenize":
            self.answer(200, {"tokens": list(range(10, 40)), "max_model_len": 128})
        else:
            if request.get("prompt") == "slow":
                wait_for(SCRIPT["slow"])
            else:
                with served:
                    pause = LATENCIES[min(turn, len(LATENCIES) - 1)]
                    turn += 1
                time.sleep(pause)
            self.answer(200, completion())


def completion() -> dict[str, object]:
    logprob, margin = SCRIPT.get("logprob", -0.1), SCRIPT.get("margin", 2.0)
    ranked = [{f"t{token}": logprob, "other": logprob - margin} for token in TOKENS] if logprob is not None else []
    logprobs = {
        "tokens": [f"t{token}" for token in TOKENS],
        "token_logprobs": [logprob] * len(TOKENS),
        "top_logprobs": ranked,
    }
    text = "".join(f"t{token}" for token in TOKENS)
    return {"choices": [{"text": text, "token_ids": TOKENS, "logprobs": logprobs, "finish_reason": "length"}]}


def main() -> None:
    server: ThreadingHTTPServer | None = None

    def stop(_signum: int, _frame: object) -> None:
        if server is None:
            os._exit(0)
        threading.Thread(target=server.shutdown, daemon=True).start()

    signal.signal(signal.SIGTERM, signal.SIG_IGN if SCRIPT.get("ignore_sigterm") else stop)
    signal.signal(signal.SIGUSR1, lambda *_: write("out", "got SIGUSR1\n"))
    for kind, *arguments in SCRIPT.get("steps", []):
        STEPS[kind](*arguments)
    ThreadingHTTPServer.daemon_threads = False
    ThreadingHTTPServer.block_on_close = True  # requests in flight are finished, as vLLM does with --shutdown-timeout
    server = ThreadingHTTPServer(("127.0.0.1", SCRIPT["port"]), Api)
    write("err", "INFO:     Application startup complete.\n")
    server.serve_forever(poll_interval=0.01)
    server.server_close()
    write("out", "engine: all requests finished\n")
    sys.exit(SCRIPT.get("exit_code", 0))


main()

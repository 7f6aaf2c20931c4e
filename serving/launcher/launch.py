"""The pod's entry point: starts the engine, times its phases, warms it up, and only then reports Ready.

    python launch.py --config /etc/coldstart/launcher.json -- vllm serve {weights} --port 8000 ...

One file is all of the launcher (in the repository a package, which `serving.launcher.bundle` makes one file of). It is
shipped in a ConfigMap and run by the engine image's own Python (3.11 or newer), so it imports nothing but the standard
library and `prometheus_client`; `boto3` (and `zstandard` where it is installed) are imported only by short-lived worker
processes that move a cache.

What it does, in order
    1. reads its configuration strictly (exit 2 with every problem at once), takes its own port, checks the engine's
       port and the GPUs;
    2. makes the weights of the first usable path ready (`node-cache` fills, `shared-fs` and `baked` are checked);
    3. restores the compile cache, when one is configured, within its time limit;
    4. starts the engine as its child: `{weights}` in the engine's arguments becomes the `engine_args` of that path;
    5. passes both output streams through unchanged and times the phases by the engine's own lines;
    6. warms up until a repeated probe is steady or the cap is reached, and checks a known answer;
    7. reports Ready, prints the whole ledger as one JSON line, and publishes the compile cache if there was none.

Configuration (`launcher.json`): the fields of `Config` below, nested as its `from_json` reads them. Every field is
required unless its reader has a default, unknown fields are refused.

HTTP on `port`
    /startup  200 once the start is decided: Ready, or refused (a wrong answer, a warm-up without one success).
              A start that hangs is restarted by its startup probe; one that is refused stays up to be looked at.
    /ready    200 only when warm, right, healthy and not draining; else 503 and the reason.
    /live     200 until the engine itself says that it is dead.
    /ledger   the ledger as JSON; /metrics the metrics of `METRICS` for Prometheus.

Signals are forwarded to the engine's main process. After SIGTERM or SIGINT the engine has `drain.timeout_s` to finish
its requests; then its whole process group is killed. Exit code: the engine's; 128 + n when signal n ended it; 2 for a
bad configuration; 1 when the launcher itself refuses (port taken, GPUs missing, every weights path failed); 127 when
the engine's program does not exist.

    python launch.py --fill --source s3://BUCKET/PREFIX/ --dir DIR [--manifest s3://BUCKET/KEY] [--connections N]

fills a shared file system once: verified, atomic, resumable, safe when two run at once.
"""

from __future__ import annotations

import argparse
import dataclasses
import http
import signal
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

from serving.launcher.answer import check_answer
from serving.launcher.answer_reader import AnswerReader
from serving.launcher.children import Children, exit_code_of, kill_group
from serving.launcher.command import check_engine_argv, engine_arguments, without_secrets
from serving.launcher.config import Config, read_config
from serving.launcher.console import Console
from serving.launcher.copies import flush_copy, safetensors_bytes
from serving.launcher.engine import Engine
from serving.launcher.engine_api import EngineApi
from serving.launcher.engine_log import EngineLog
from serving.launcher.facts import Attempt
from serving.launcher.fill_command import fill_main
from serving.launcher.kept_cache import KeptCache
from serving.launcher.ledger import Ledger, note_engine
from serving.launcher.machine import check_machine
from serving.launcher.phases import phase_reached
from serving.launcher.port import Port
from serving.launcher.probes import Probes
from serving.launcher.refusal import BadConfig, Refused, explain
from serving.launcher.status import Status
from serving.launcher.timeline import Timeline, process_age_s
from serving.launcher.warmup import Warmup
from serving.launcher.weights import Prepared, prepare
from serving.launcher.worker import Worker, worker_main

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import FrameType

_FORWARDED = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2)

_ANSWER_TIMEOUT_S = 120.0
"""The first request with log-probabilities compiles their kernel: seconds, more on a node that does other work."""


class Launcher:
    """One start of one pod."""

    def __init__(self, config: Config, argv: Sequence[str], timeline: Timeline, console: Console) -> None:
        self._config, self._argv, self._timeline, self._console = config, argv, timeline, console
        self._status = Status()
        self._ledger = Ledger(config, timeline)
        self._api = EngineApi(config.engine_port, config.served_model_name)
        self._children = Children()
        self._worker = Worker([sys.executable, str(Path(__file__).resolve())], self._children, self._status.stopping)
        cache = config.compile_cache
        self._cache = KeptCache(cache, self._ledger.cache, self._worker, console) if cache is not None else None
        manifest = config.answer_manifest
        self._recorded = AnswerReader(manifest, self._worker) if manifest is not None else None
        self._engine: Engine | None = None
        self._prepared: Prepared | None = None

    def run(self) -> int:
        """Everything, to the exit code."""
        for signum in _FORWARDED:
            signal.signal(signum, self._on_signal)
        threading.Thread(target=self._lose_patience, name="patience", daemon=True).start()
        try:
            self._serve_probes()
            check_machine(self._config)
            engine = self._load()
            if engine is None:
                self._console.say("stopped", reason="asked to stop before the engine was started")
                return 128 + signal.SIGTERM
            if not engine.ended():
                self._warm(engine)
            while not engine.ended(timeout_s=60.0):
                pass
            return self._end(engine)
        finally:
            self._console.close()

    def _on_signal(self, signum: int, _frame: FrameType | None) -> None:
        """Forwards; the first request to stop also takes the pod out of the Service. Runs in the main thread."""
        if signum in {signal.SIGTERM, signal.SIGINT} and not self._status.stopping.is_set():
            self._status.set("draining", f"{signal.Signals(signum).name}: the engine finishes its requests")
            self._status.stopping.set()
        if self._engine is not None:
            self._engine.send(signum)

    def _lose_patience(self) -> None:
        """In a thread of its own: an engine that does not end in its time after the signal is killed."""
        self._status.stopping.wait()
        time.sleep(self._config.drain_timeout_s)
        if self._engine is not None and not self._engine.ended():
            reason = f"the engine still ran {self._config.drain_timeout_s:g} s after the signal"
            self._console.say("killed", reason=reason)
            kill_group(self._engine.process)

    def _serve_probes(self) -> None:
        probes = Probes(self._config, self._timeline, self._ledger, self._status, self._api)
        try:
            server = Port(self._config.port, probes.routes())
        except OSError as error:
            raise Refused(f"the launcher's port {self._config.port} is taken: {error.strerror}") from error
        threading.Thread(target=server.serve_forever, args=(0.5,), name="probes", daemon=True).start()

    def _load(self) -> Engine | None:
        """Tries the weights paths in their order until the engine answers its health check.

        Every path is tried at most once, and once more without the compile cache if the engine died on one: a start
        never becomes a loop.

        Returns:
            The engine; nothing when the pod was stopped before an engine ran.

        Raises:
            Refused: no path is left, or the engine died for another reason.
        """
        failed = self._ledger.weights.failed
        for path in self._config.paths:
            if self._status.stopping.is_set():
                break
            self._status.set("loading", f"weights by {path.kind}")
            self._ledger.enter("weights", f"fetch by {path.kind}")
            try:
                self._prepared = prepare(path, self._worker)
            except Refused as error:
                failed[path.kind] = str(error)
            else:
                if self._run_engine(self._prepared):
                    return self._engine
                failed[path.kind] = self._ledger.attempts[-1].reason
            self._console.say("weights-path-failed", kind=path.kind, reason=failed[path.kind])
        if self._status.stopping.is_set():
            return self._engine
        code = exit_code_of(self._engine.process) if self._engine is not None else 1
        raise Refused("; ".join(f"weights by {kind}: {why}" for kind, why in failed.items()), code or 1)

    def _run_engine(self, prepared: Prepared) -> bool:
        """Runs the engine with these weights; whether it serves, or the pod is being stopped.

        Raises:
            Refused: the engine died, and other weights would not help.
        """
        weights = self._ledger.weights
        weights.kind, weights.origin = prepared.path.kind, prepared.origin
        weights.weights_bytes = safetensors_bytes(prepared.directory) if prepared.directory else None
        argv = engine_arguments(self._argv, prepared.path, prepared.directory)
        cached = self._restore_cache(argv)
        while not self._status.stopping.is_set():
            engine = self._start_engine(argv)
            if self._await_health(engine):
                return True
            died = self._note_death(engine, prepared.path.kind)
            if self._status.stopping.is_set():
                break
            if cached and self._cache is not None and died.phase == "engine":
                self._cache.drop()
                cached = False
            elif engine.log.seen("source_failed") or (died.phase == "weights" and prepared.directory is not None):
                return False
            else:
                raise Refused(died.reason, died.exit_code or 1)
        return True

    def _start_engine(self, argv: Sequence[str]) -> Engine:
        log = EngineLog(self._timeline.now)
        self._console.say("engine-starts", argv=without_secrets(argv), at_s=round(self._timeline.now(), 3))
        self._ledger.engine_started(log)
        engine = self._engine = Engine(self._children, self._console, log, argv)
        if self._recorded is not None:
            self._recorded.begin()
        if self._status.stopping.is_set():
            engine.send(signal.SIGTERM)  # the signal came while there was no engine to send it to
        return engine

    def _await_health(self, engine: Engine) -> bool:
        """Waits for the engine to answer; whether it does."""
        while not engine.ended(timeout_s=0.02 if engine.log.seen("serving") else 0.1):
            if self._api.health(1.0) == http.HTTPStatus.OK:
                engine.log.serve()
                self._ledger.enter("warmup", "plan and probe")
                note_engine(self._ledger, engine.log.sightings())
                return True
        return False

    def _note_death(self, engine: Engine, kind: str) -> Attempt:
        """Takes a run that never served into the ledger."""
        code, seen, last = engine.settle(), engine.log.sightings(), engine.log.tail()
        self._ledger.enter("start", "after the engine died", served=False)
        phase = phase_reached(seen)
        causes = [sighting.line for sighting in seen if sighting.name == "source_failed"]
        reason = f"the engine ended with {code} in phase {phase}" + (f": {causes[-1]}" if causes else "")
        attempt = Attempt(kind=kind, phase=phase, exit_code=code, reason=reason, last_lines=last)
        self._ledger.attempts.append(attempt)
        self._console.say("engine-died", **dataclasses.asdict(attempt))
        return attempt

    def _restore_cache(self, argv: Sequence[str]) -> bool:
        if self._cache is None:
            return False
        self._ledger.enter("engine", "compile cache restore")
        return self._cache.restore(argv, self._timeline.now)

    def _warm(self, engine: Engine) -> None:
        """Warm-up, the answer, and then Ready or not."""
        self._status.set("warming", "the engine serves; warm-up runs")
        ledger, warmup = self._ledger, self._ledger.warmup

        def stopped() -> bool:
            return self._status.stopping.is_set() or engine.ended()

        Warmup(self._api, self._config.warmup, warmup, stopped).run()
        if stopped():
            return
        known, unknown = (self._config.answer, "") if self._recorded is None else self._recorded.get()
        ledger.answer = check_answer(self._api, known, _ANSWER_TIMEOUT_S)
        ledger.answer.unknown = unknown
        ledger.end()
        if not warmup.requests:
            self._status.set("refused", f"no request of the warm-up succeeded: {'; '.join(warmup.failed[:2])}")
        elif not ledger.answer.right:
            self._status.set("refused", ledger.answer.reason)
        else:
            self._status.set("ready", "warm, and the answer is right")
        self._console.say(self._status.state, ledger=ledger.document(self._status.state, self._status.reason))
        if self._status.state == "ready":
            threading.Thread(target=self._after_ready, name="after-ready", daemon=True).start()

    def _after_ready(self) -> None:
        """What can wait until users are served: the copy is flushed, the compile cache is published."""
        prepared = self._prepared
        if prepared is not None and prepared.lock is not None and prepared.directory is not None:
            try:
                flush_copy(prepared.directory)
            except OSError as error:
                self._console.say("copy-not-flushed", dir=str(prepared.directory), reason=explain(error))
        if self._cache is not None:
            self._cache.publish()

    def _end(self, engine: Engine) -> int:
        """The engine is gone: its rest is passed on, its code becomes ours."""
        code = engine.settle()
        asked = self._status.stopping.is_set()
        self._status.set("ended", f"the engine ended with {code}")
        last = [] if asked else engine.log.tail()
        self._console.say("engine-ended", exit_code=code, asked_to_stop=asked, last_lines=last)
        return code


def main(arguments: Sequence[str]) -> int:
    """The command line; see the module's first lines."""
    if list(arguments[:1]) == ["--worker"]:
        return worker_main()
    age_s = process_age_s()
    console = Console()
    try:
        if list(arguments[:1]) == ["--fill"]:
            return fill_main(arguments[1:])
        parser = argparse.ArgumentParser(prog="launch.py", description="Starts an engine, warms it, reports Ready.")
        parser.add_argument("--config", required=True, type=Path, help="launcher.json")
        parser.add_argument("engine", nargs=argparse.REMAINDER, help="-- and the engine's command")
        given = parser.parse_args(arguments)
        argv = list(given.engine)[1:] if given.engine[:1] == ["--"] else list(given.engine)
        config = read_config(given.config)
        check_engine_argv(argv, config)
        return Launcher(config, argv, Timeline(age_s), console).run()
    except BadConfig as error:
        console.say("bad-configuration", problems=error.problems)
        return 2
    except Refused as error:
        console.say("refused", reason=str(error), exit_code=error.code)
        return error.code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

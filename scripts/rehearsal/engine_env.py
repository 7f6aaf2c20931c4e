"""The environment that holds the real engine and the S3 server."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path

from scripts.failure import Failure

FOLDER = Path(".cache/rehearse")
"""Where `make rehearse-env` puts it."""
SCRIPTS = Path(__file__).with_name("in_engine_env")


@dataclass(frozen=True, kw_only=True, slots=True)
class EngineEnv:
    """A virtual environment with vLLM's CPU build, the streamer, an S3 server and a client."""

    folder: Path

    @property
    def python(self) -> Path:
        """Its interpreter: stands for the engine image's `python3`."""
        return self.folder / "bin" / "python"

    @property
    def weed(self) -> Path:
        """The S3 server's program."""
        return self.folder / "bin" / "weed"

    def run(self, script: str, *arguments: str, timeout_s: float = 900.0) -> str:
        """Runs one of the scripts of `in_engine_env`; what it printed.

        Raises:
            Failure: it failed, with the end of what it said; or took too long.
        """
        argv = [str(self.python), str(SCRIPTS / script), *arguments]
        try:
            done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=timeout_s)  # noqa: S603 - our own script
        except subprocess.TimeoutExpired as error:
            raise Failure(f"{script} was not done in {timeout_s:.0f} s: is this machine busy?") from error
        if done.returncode:
            raise Failure(f"{script} ended with {done.returncode}: {done.stderr.strip()[-600:]}")
        return done.stdout


def engine_env(folder: Path = FOLDER) -> EngineEnv:
    """The environment in a folder, after a look that it is whole.

    Raises:
        Failure: it isn't there, or something is missing in it.
    """
    found = EngineEnv(folder=folder.absolute())
    needed = ("vllm", "runai-model-streamer", "runai-model-streamer-s3", "boto3", "prometheus-client", "openai")
    if not found.python.exists() or not found.weed.exists():
        raise Failure(f"{folder} holds no engine. Make it: `make rehearse-env` (about 6 GB on disk).")
    code = "import sys; from importlib.metadata import version; [version(name) for name in sys.argv[1:]]"
    done = subprocess.run(  # noqa: S603 - our own one-line script
        [str(found.python), "-c", code, *needed], capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise Failure(
            f"{folder} is not whole ({done.stderr.strip().splitlines()[-1]}). Make it again: `make rehearse-env`."
        )
    return found

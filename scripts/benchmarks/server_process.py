"""Runs a server of the benchmark in its own process, so that it does not share a GIL with the client."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager


@contextmanager
def server_process(script: str) -> Generator[str]:
    """Run a script that prints its port and serves until its standard input closes; yield its address."""
    # -P: otherwise `import http` would import the http.py of this folder.
    command = [sys.executable, "-P", script]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None and process.stdout is not None  # noqa: S101, PT018  for the types
        try:
            yield f"127.0.0.1:{process.stdout.readline().strip()}"
        finally:
            process.stdin.close()  # ends the server

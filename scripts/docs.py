"""Build the documentation: run it by `scripts/docs`."""

from __future__ import annotations

import argparse
import functools
import http.server
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from documentation import llms
from documentation.links import broken
from documentation.pages import DOCS, ROOT
from documentation.reference import for_readers

SITE = ROOT / "site"
CONFIGURATION = ROOT / "scripts" / "documentation"


def renew_llms() -> None:
    """Update the list of pages in llms.txt."""
    before = llms.FILE.read_text("utf-8")
    after = llms.renewed(before)
    if after != before:
        llms.FILE.write_text(after, "utf-8")
        print("llms.txt lists other pages now: commit it")


def unknown_names() -> Iterator[str]:
    """Yield the names in the reference that the library does not have; Sphinx would print a traceback."""
    for page in sorted(DOCS.rglob("*.md")):
        try:
            for_readers(page.read_text("utf-8"))
        except LookupError as error:
            yield f"{page.relative_to(ROOT)}: {error}"


def build() -> bool:
    """Build the site from scratch; return True if there were no problems."""
    if problems := list(unknown_names()):
        print("\n".join(problems), file=sys.stderr)
        return False
    shutil.rmtree(SITE, ignore_errors=True)
    command = [sys.executable, "-m", "sphinx", "--quiet", "--fail-on-warning", "-E"]
    command += ["-d", str(SITE / ".doctrees"), "-c", str(CONFIGURATION), str(DOCS), str(SITE)]
    paths = {"PYTHONPATH": str(CONFIGURATION.parent)}  # so that conf.py can import its package
    if subprocess.run(command, env={**os.environ, **paths}, cwd=ROOT, check=False).returncode:
        return False
    shutil.rmtree(SITE / ".doctrees")  # Sphinx's cache
    shutil.rmtree(SITE / "_sources")
    llms.publish(SITE)
    for problem in (problems := list(broken(SITE))):
        print(problem, file=sys.stderr)
    return not problems


def serve(port: int) -> None:
    """Serve the site on loopback."""
    handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=str(SITE))
    with http.server.ThreadingHTTPServer(("127.0.0.1", port), handler) as server:
        print(f"http://127.0.0.1:{server.server_port}/  (Ctrl-C ends it)", flush=True)
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            print()


def main() -> int:
    """Build, and with ``--serve`` serve the site."""
    parser = argparse.ArgumentParser(prog="scripts/docs", description="Build the documentation into site/.")
    parser.add_argument("--serve", action="store_true", help="show it on this machine afterwards")
    parser.add_argument("--port", type=int, default=8000, help="where to show it; 0 for any free port")
    options = parser.parse_args()

    renew_llms()
    if not build():
        print("the documentation has mistakes, see above", file=sys.stderr)
        return 1
    print(f"built: {(SITE / 'index.html').relative_to(Path.cwd())}")
    if options.serve:
        serve(options.port)
    return 0


if __name__ == "__main__":
    sys.exit(main())

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
    """Renew the list of pages in llms.txt."""
    before = llms.FILE.read_text("utf-8")
    after = llms.renewed(before)
    if after != before:
        llms.FILE.write_text(after, "utf-8")
        print("llms.txt lists other pages now: commit it")


def unknown_names() -> Iterator[str]:
    """Find what the reference names and the library does not have: Sphinx would show a long traceback."""
    for page in sorted(DOCS.rglob("*.md")):
        try:
            for_readers(page.read_text("utf-8"))
        except LookupError as error:
            yield f"{page.relative_to(ROOT)}: {error}"


def build() -> bool:
    """Build the site from scratch; say whether all went well."""
    if problems := list(unknown_names()):
        print("\n".join(problems), file=sys.stderr)
        return False
    shutil.rmtree(SITE, ignore_errors=True)
    command = [sys.executable, "-m", "sphinx", "--quiet", "--fail-on-warning", "-E"]
    command += ["-d", str(SITE / ".doctrees"), "-c", str(CONFIGURATION), str(DOCS), str(SITE)]
    paths = {"PYTHONPATH": str(CONFIGURATION.parent)}  # for the configuration to find what it imports
    if subprocess.run(command, env={**os.environ, **paths}, cwd=ROOT, check=False).returncode:
        return False
    shutil.rmtree(SITE / ".doctrees")  # of use to Sphinx alone
    shutil.rmtree(SITE / "_sources")
    llms.publish(SITE)
    for problem in (problems := list(broken(SITE))):
        print(problem, file=sys.stderr)
    return not problems


def serve(port: int) -> None:
    """Show the site on this machine, and to nobody else."""
    handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=str(SITE))
    with http.server.ThreadingHTTPServer(("127.0.0.1", port), handler) as server:
        print(f"http://127.0.0.1:{server.server_port}/  (Ctrl-C ends it)", flush=True)
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            print()


def main() -> int:
    """Build, and serve if asked to."""
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

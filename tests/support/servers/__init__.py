"""A web server that misbehaves on request: the path of a URL is the script of its responses.

    with Server() as server:
        url = server.url("503*2,429~ra=2,rst,200")
        ...
        server.ledger(url)  # the requests received

It is deterministic, and needs the standard library only.
"""

from tests.support.servers.dead_ports import black_hole, refused_port
from tests.support.servers.request_log import Received
from tests.support.servers.response_bytes import pattern
from tests.support.servers.script import Step, parse, value
from tests.support.servers.server import Server

__all__ = ["Received", "Server", "Step", "black_hole", "parse", "pattern", "refused_port", "value"]

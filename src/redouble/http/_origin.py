"""The origin of a request, in the form that is the same in every client."""

from __future__ import annotations

DEFAULT_PORTS = {"http": 80, "https": 443}


def origin(scheme: str, host: str, port: int | None) -> str:
    """Return scheme, host and effective port as a text, such as ``https://example.org:443``.

    host: as it is sent: in ASCII, an IPv6 address without brackets.
    port: None for the default port of the scheme.
    """
    scheme, host = scheme.lower(), host.lower()
    port = DEFAULT_PORTS.get(scheme) if port is None else port
    return f"{scheme}://{f'[{host}]' if ':' in host else host}" + (f":{port}" if port is not None else "")

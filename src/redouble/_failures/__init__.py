"""What an error means.

A rule maps an exception to a `Verdict`: retry, stop or accept, with a kind, a hint, and whether the request
was sent. `transient` knows the errors of some thirty libraries by qualified name, without importing them;
its tables load on first use. The header parsers (Retry-After, quotas, HTTP dates) never raise. Nothing here
knows of attempts or delays.
"""

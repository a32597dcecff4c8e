"""Classification of errors: rules, verdicts and the built-in rule `transient`.

A rule maps an exception to a `Verdict`: retry, stop or accept, with a kind, a hint, and whether the request
was sent. `transient` recognises the errors of some fifty libraries by qualified name, without importing
them; its tables load on first use. The header parsers (Retry-After, quotas, HTTP dates) never raise. This
package imports nothing that counts attempts, computes delays or reads a monotonic clock: those decisions
belong to the engine.
"""

"""The modules of `scripts/peers`.

`request` defines a request and its outcome; `scenarios` lists the requests with their right outcomes. Each
`with_...` module sends a request through one library and shows its configuration. `runner` runs them against
the server of the tests, `table` prints.
"""

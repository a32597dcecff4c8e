"""What `scripts/peers` is made of.

`asked` is one request, and what was seen of it. `scenarios` says what is asked and what would be right. Each
`with_...` file sends a request through one library, and states how that is configured. `running` runs them
against the server of the tests, `table` prints.
"""

"""What `scripts/bench` is made of.

`work` is what gets called. `by_hand` is the loop one would write without a library, `guards_by_hand` the
breaker and the rest; each `with_...` file is the same done with one library, and states how that is
configured; for HTTP that is `http_clients`, and they talk to `http_server`, or in memory to `http_memory`.
`timing`, `imports`, `memory`, `limits`, `budgets`, `guards` and `http` measure, `figures` says what is to be
reached, `table` prints.
"""

"""The modules of `scripts/demo`.

Part one: `client_comparison` calls a `flaky_service` with the three clients of `fetchers`, which use
`http_client` and `seeded_random`; `giving_up` shows two calls that fail for good.

Part two: `brownout` runs a `limited_service` through the phases of `scenario`. `load_generator` sends
requests with each of the `retry_strategies`, and `recovery` computes which of them recovered.

`styled_text`, `timeline`, `bar_chart` and `brownout_chart` draw without printing; only `screen` prints.
"""

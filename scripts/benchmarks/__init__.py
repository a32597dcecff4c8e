"""The modules of `scripts/bench`.

`suite` lists the rows; each of its modules (`streams`, `breakers`, `http`, ...) measures some of them with
`timing`, and `table` prints them. `workloads` has the functions that are called. `handwritten_retry` and
`handwritten_guards` are the baselines without a library; each `with_...` module does the same with one
library and shows its configuration. For HTTP the libraries are in `http_clients`, which talk to `http_server`
or to `http_fake_connections`.
"""

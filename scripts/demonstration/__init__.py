"""What `scripts/demo` is made of.

Told first: `service` is flaky, `ways` are three ways to call it, `clients` and `chance` serve them, and
`three_ways` and `giving_up` tell what happened. Told second: `weather` says when a service of finite
capacity (`limited`) browns out, `callers` keep calling it with more or less `restraint`, `verdict` says who
recovered, and `brownout` tells it.

`ink`, `timeline`, `bars` and `picture` draw and do nothing else; `screen` is the only file that prints.
"""

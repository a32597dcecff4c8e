"""Configuration: policies, budgets, gates and pipelines from mappings, TOML files and the environment.

>>> from redouble import config
>>> config.policy({"attempts": 5, "timeout": "10s"})
Retry(attempts=5, timeout=10.0)

A document cannot import code: it refers to errors and rules by built-in names, or by names added with
`register`. Every mistake in a document raises `redouble.errors.ConfigError` with the path of the mistake.
"""

from redouble.config._builder import from_file, from_mapping, policy
from redouble.config._config import Config, to_mapping
from redouble.config._json_schema import schema
from redouble.config._named_policy import Named
from redouble.config._options.error_names import register
from redouble.config._qubit_retry_compat import from_qubit
from redouble.config._reload import Reload, load, reload

__all__ = [
    "Config",
    "Named",
    "Reload",
    "from_file",
    "from_mapping",
    "from_qubit",
    "load",
    "policy",
    "register",
    "reload",
    "schema",
    "to_mapping",
]

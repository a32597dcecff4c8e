"""The documentation: from plain Markdown and docstrings to a site, and to what language models read."""

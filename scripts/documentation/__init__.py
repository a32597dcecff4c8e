"""The modules of `scripts/docs`: a site and the files for language models, from Markdown and docstrings."""

"""How a stream of a language model ends, fails and reports usage, for each provider."""

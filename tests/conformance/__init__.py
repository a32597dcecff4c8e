"""The observed behaviour of other systems, as tables: each row has the id of its fact."""

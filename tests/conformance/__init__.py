"""What other systems were observed to do, as tables: each row bears the id of its fact."""

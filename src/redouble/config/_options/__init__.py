"""Every option that a document can set, declared once for reading, writing, variables and the JSON Schema."""

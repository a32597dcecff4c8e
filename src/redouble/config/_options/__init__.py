"""Every option that a document can set, described once: reading, writing, variables, JSON Schema."""

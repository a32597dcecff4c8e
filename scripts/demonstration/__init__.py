"""What `scripts/demo` is made of: a flaky service, its clients, and how to show what happened."""

"""Pictures of what the strategies do over time, drawn from runs in virtual time: see `scripts/pictures`."""

"""What the adapters of all client libraries share. It sends nothing itself.

Turning a policy into a function that sends, one idempotency key for each logical call, the record of a call
that the engine never saw, and deadlines for blocking sockets.
"""

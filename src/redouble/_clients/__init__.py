"""Code shared by the adapters of all client libraries; nothing here sends a request.

`plan` turns a policy into a function that sends, `idempotency_key` makes keys, one for each logical call,
`call_record` records a call that the engine never saw, and `socket_deadline` limits blocking sockets.
"""

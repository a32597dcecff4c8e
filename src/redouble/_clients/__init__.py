"""Code shared by the adapters of all client libraries; nothing here sends a request.

`plan` turns a policy into a function that sends, `idempotency_key` makes keys, one for each logical call,
`client_call` is the state of one logical call, `policy_binding` follows a policy given by name,
`socket_deadline` limits blocking sockets, and `library_error` makes errors of ours errors of a library too.
"""

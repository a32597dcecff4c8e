"""What the adapters of all client libraries share; nothing here sends a request.

They share the plan, which turns a policy into a function that sends; idempotency keys, one for each logical
call; the record of a call that the engine never saw; deadlines for blocking sockets.
"""

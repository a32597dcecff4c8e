"""Clocks, deadlines and async backends.

`Clock` and the system clock, deadlines carried in the context, the ambient flag that sends calls to the slow
path, the enclosing calls on the call stack, slots with the FIFO queue of calls that wait for one, and one
backend each for asyncio and Trio: sleeping, cancel scopes, wakers. A backend is imported when its library is
running.
"""

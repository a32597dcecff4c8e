"""What `scripts/bench` is made of.

`work` is what gets called. `by_hand` is the loop one would write without a library; each `with_...`
file is the same done with one library, and states how that is configured. `timing`, `imports`, `memory`
and `limits` measure, `figures` says what is to be reached, `table` prints.
"""

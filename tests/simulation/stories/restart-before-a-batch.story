# The server restarts before the first call of a batch, and loses a batch of another daemon, which is about to be
# committed.

send 0 o knoll lagoon inlet jetty
send 1 p fjord grove heath ember
settle
send 0 s heath lagoon grove
send 1 q fjord lagoon heath
settle
save copy
send 1 y amber birch cedar delta
run b until publish
send 0 z amber birch cedar delta
run a until insert_entries
back copy
run a until finish
run b 3

# An idle daemon sees that the server has restarted while a batch of another daemon, which is lost, is about to be
# committed.

send 0 o knoll lagoon inlet jetty
send 1 p fjord grove heath ember
settle
send 1 q fjord lagoon heath
settle
save copy
send 1 y amber birch cedar delta
run b until publish
clock 10
back copy
run a 20
send 0 z amber birch cedar delta
run a 30
run a 30
run b 3

# The server restarts with an older copy before the last call of a batch: the next batch needs what the copy lacks.

run a 9
run b 9
run a 9
run b 9
send 0 x amber birch cedar delta
send 1 p fjord grove heath ember
run a until finish
run a 1
run b until finish
save copy
send 0 o knoll lagoon inlet jetty
run a until finish
run a 1
back copy
run b 1
send 1 y knoll lagoon inlet jetty
run b until finish

# A daemon that has begun a rebuild is frozen for longer than its lease; another one rebuilds the index meanwhile.

send 0 o knoll lagoon inlet jetty
settle
flush
send 0 p fjord grove heath ember
run a until hold
run a until confirm
freeze a
clock 70
run b 60
run b 60
run b 60
run b 60
wake a
settle
rebalance
settle
send 0 x amber birch cedar delta
send 1 y amber birch cedar delta

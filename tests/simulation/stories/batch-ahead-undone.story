# A batch is refused while the batch behind it, of a partition that stays, is read ahead: both are read again.
daemons a
batch 1

run a 9
rebalance
send 0 o knoll lagoon inlet jetty
run a 60
send 0 x amber birch cedar delta
send 1 y amber birch cedar delta
send 1 p fjord grove heath ember
run a until insert_entries
start b
run b until insert_entries
run b 40

# A daemon rewinds a batch that another daemon has committed while the partition was away and came back.
partitions 1

run a 9
run b 9
send 0 x amber birch cedar delta
send 0 y amber birch cedar delta
run a until insert_entries
rebalance
run b until finish
kill b
expire b
run a 40

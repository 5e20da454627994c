# A rebalance between a batch and the one that is read ahead: both are read again.
daemons a
batch 1

send 0 x amber birch cedar delta
send 1 y amber birch cedar delta
run a until poll_ahead
rebalance

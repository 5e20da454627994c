# Offsets are set back, and the daemon dies between the batches that it reads again: the mark of before stays.
partitions 1
daemons a
batch 1

send 0 x amber birch cedar delta
send 0 y amber birch cedar delta
send 0 z amber birch cedar delta
settle
offsets 0 0
start a
run a until finish
run a 1
kill a

# A replay publishes the pair of a version that was deleted in the same batch, and whose match was saved.
partitions 1
daemons a

send 0 x heath delta amber lagoon
run a 19
delete 0 y
send 0 y heath delta amber lagoon
delete 0 y
run a 1
freeze a

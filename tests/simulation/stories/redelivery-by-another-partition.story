# A document comes in two partitions; the index is lost when only the later record is committed, which was silent.

send 1 y amber birch cedar delta
settle
send 0 x amber birch cedar delta
run a until announce
send 1 x amber birch cedar delta
run b 40
flush

# The index is rebuilt when Kafka has deleted the offsets of the group: the pairs that were published stay silent.
partitions 1
daemons a

send 0 x amber birch cedar delta
send 0 y amber birch cedar delta
settle
delete-group
rebuild 1

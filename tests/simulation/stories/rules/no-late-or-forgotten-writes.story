# Without the rule "no late or forgotten writes" this history ends badly.
partitions 1
daemons a

send 0 d0 birch lagoon ember birch cedar
delete 0 d0
send 0 d0 birch lagoon ember birch cedar
run a until remove_from_buckets
fate a twice
run a 7
late 1
send 0 d1 birch lagoon ember birch cedar

# One slot goes back to an attempt that Kafka refused; the next attempt was committed.

partitions 1
daemons a
batch 1
send 0 a amber birch cedar delta ember
settle
send 0 b fjord glade heath inlet jetty
run a until publish
save copy
fate a before commit
run a 2
settle
kill a
start a
back copy
send 0 y fjord glade heath inlet jetty

# As before, where a partition has a gap too.

partitions 2
daemons a b
batch 1
send 0 a amber birch cedar delta ember
send 1 b fjord glade heath inlet jetty
settle
send 0 y plum quartz river stone tulip
run a until publish
save copy
send 1 c knoll lagoon marsh north olive
run b 40
run b 40
kill a
kill b
expire a
expire b
rebuild 1
run rebuild 400
run rebuild 400
back copy
send 1 z plum quartz river stone tulip

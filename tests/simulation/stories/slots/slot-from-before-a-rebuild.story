# One slot goes back to before a rebuild, since which nothing was committed.

partitions 1
daemons a
batch 1
send 0 a amber birch cedar delta ember
settle
send 0 b fjord glade heath inlet jetty
settle
save copy
rebuild 1
run rebuild 400
run rebuild 400
kill a
back copy
send 0 y plum quartz river stone tulip
send 0 z plum quartz river stone tulip

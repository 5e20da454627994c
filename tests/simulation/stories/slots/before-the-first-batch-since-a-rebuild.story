# One slot goes back to before the first batch since a rebuild: the slots know different attempts, and the gap is filled.

partitions 1
daemons a
batch 1
send 0 a amber birch cedar delta ember
settle
rebuild 1
run rebuild 400
run rebuild 400
save copy
send 0 b fjord glade heath inlet jetty
settle
kill a
start a
back copy
send 0 y fjord glade heath inlet jetty

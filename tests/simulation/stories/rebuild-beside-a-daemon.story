# `index rebuild` replaces a whole index, while a daemon is at work that was started before the operator confirmed.
partitions 1
daemons a

send 0 x amber birch cedar delta
settle
send 0 o knoll lagoon inlet jetty
settle
rebuild
run rebuild until take_lease
start a
run a until poll
send 0 p fjord lagoon inlet jetty
run a until finish
run a 2
send 0 y amber birch cedar delta
run rebuild 1
run rebuild 1
run rebuild 1
run a until finish
run a 1
run rebuild 400

# `index drop` with all daemons stopped is suspended for longer than its lease; meanwhile a daemon rebuilds the index.
partitions 1
daemons a

send 0 x amber birch cedar delta
settle
send 0 o knoll lagoon inlet jetty
settle
stop a
drop
run drop until clear
run drop 1
start a
run a 20
clock 61
run a 400
run a 400
run a 400
send 0 k fjord grove heath ember
run a 400
run a 400
run drop 1
send 0 y amber birch cedar delta
run a 400

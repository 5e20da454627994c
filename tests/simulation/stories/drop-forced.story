# `index drop --force` beside a daemon at work: the batch of y no longer finds the entry of x.
partitions 1
daemons a

send 0 x amber birch cedar delta
settle
send 0 o knoll lagoon inlet jetty
run a until finish
run a 2
send 0 y amber birch cedar delta
drop force
run drop until clear
run drop 1
run drop 1
run a until finish
run a 1
run drop 400

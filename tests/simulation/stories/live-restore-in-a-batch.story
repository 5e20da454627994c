# Keys are put back in the middle of a batch: the index refuses a call after one that it has forgotten.
partitions 1
daemons a

send 0 o knoll lagoon inlet jetty
settle
save copy
send 0 x amber birch cedar delta
run a until insert_and_look_up
back copy live
run a 20
send 0 y amber birch cedar delta

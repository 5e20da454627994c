# Keys are put back in a batch of a daemon that was idle for an hour, so that the server knows no call of it.
partitions 1
daemons a

send 0 o knoll lagoon inlet jetty
settle
save copy
send 0 x amber birch cedar delta
settle
clock 4000
send 0 y amber birch cedar delta
run a until insert_entries
back copy live

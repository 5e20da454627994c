# Keys are put back after a lost reply, so that the daemon does not know which of its calls the server has.
partitions 1
daemons a

send 0 o knoll lagoon inlet jetty
settle
save copy
send 0 x amber birch cedar delta
run a until insert_and_look_up
fate a reply lost
run a 1
back copy live
send 0 y amber birch cedar delta

# Keys are put back, and a document whose append is lost has been continued before the loss was noticed.
partitions 1
daemons a

send 0 o knoll lagoon inlet jetty
settle
send 0 x amber birch
settle
save copy
append 0 x cedar delta ember
settle
clock 4000
append 0 x fjord
run a until get_entries
back copy live
settle
send 0 y amber birch cedar delta ember fjord

# Keys are put back, and an append has claimed a published pair, whose claim was lost, before the loss was noticed.
partitions 1
daemons a

send 0 o knoll lagoon inlet jetty
settle
send 0 x amber birch cedar delta
settle
send 0 p fjord grove heath ember
settle
send 0 y amber birch cedar delta
run a until claim_pairs
save copy
settle
clock 4000
append 0 x knoll
run a until get_entries
back copy live

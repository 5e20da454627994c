# A daemon in a partition without a commit saves pending matches while another one fills the gap.
partitions 3
daemons a b c

send 0 x amber birch cedar delta
send 1 o knoll lagoon inlet jetty
settle
send 0 p fjord grove heath ember
settle
save copy
delete 0 x
settle
back copy
send 2 y amber birch cedar delta
run c until save_pending_matches
run a until hold
run a until open_clients
run b until open_clients
run a until replace_entries
run b 10
run a until replace_entries
run a 20
run c 3

# After the group was deleted generations count from 1 again, and hide that an older copy of the index is in use.

rebalance
rebalance
rebalance
rebalance
rebalance
rebalance
rebalance
rebalance
rebalance
send 0 o amber birch cedar delta
send 1 p amber birch cedar delta
settle
save copy
delete-group
settle
send 0 x knoll lagoon inlet jetty
settle
back copy
send 1 y knoll lagoon inlet jetty

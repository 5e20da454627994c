# After a loss that nothing has noticed yet, a batch matches a document that was deleted in the gap. Of the batch only
# the pending matches are left, in a partition without a commit.
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

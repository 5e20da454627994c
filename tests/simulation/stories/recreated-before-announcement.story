# The index goes back to between the fence of a topic that was created again and its first announced attempt: the announced
# attempt is of the earlier topic, and its start says nothing about the gap.

partitions 1
daemons a
batch 1
send 0 o fjord grove heath ember
send 0 p knoll lagoon inlet jetty
settle
recreate
send 0 x amber birch cedar delta
run a until insert_entries
save copy
send 0 q tulip umber valley willow
send 0 r plum quartz river stone
settle
back copy
send 0 z amber birch cedar delta

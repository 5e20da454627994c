# One slot goes back to before the topic was created again: its announced attempt is of the earlier topic.

partitions 1
daemons a
batch 1
send 0 o fjord grove heath ember
settle
send 0 p knoll lagoon inlet jetty
settle
save copy
recreate
send 0 x0 amber birch cedar delta
send 0 q tulip umber valley willow
send 0 r plum quartz river stone
settle
kill a
start a
back copy
send 0 z amber birch cedar delta

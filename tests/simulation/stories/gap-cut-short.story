# The replay of a gap, with a partition that the copy had never seen, is cut short and done again.

send 0 x amber birch cedar delta
send 0 o knoll lagoon inlet jetty
settle
send 0 p fjord grove heath ember
settle
save copy
send 1 y amber birch cedar delta
settle
back copy
run a until insert_entries
kill a
expire a
start a
send 1 z amber birch cedar delta

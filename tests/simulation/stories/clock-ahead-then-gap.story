# The last commit that the copy knows was made by a daemon whose clock was hours ahead.
partitions 2
daemons a

skew a 20000000
send 0 x amber birch cedar delta
settle
send 0 o knoll lagoon inlet jetty
settle
skew a 0
save copy
send 1 y amber birch cedar delta
settle
back copy
settle
send 0 y amber birch cedar delta

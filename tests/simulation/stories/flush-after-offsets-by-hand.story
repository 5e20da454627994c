# As clock-ahead-then-by-hand, where a daemon rebuilds the index.
partitions 1
daemons a

skew a 1000000000
send 0 x amber birch cedar delta
settle
send 0 o knoll lagoon inlet jetty
settle
save copy
skew a 0
offsets 0 99
flush
start a
settle
send 0 k ember fjord grove heath
settle
back copy
send 0 z ember fjord grove heath

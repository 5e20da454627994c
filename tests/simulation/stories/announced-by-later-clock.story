# A batch is announced and not committed; the next process, whose clock is behind, announces a longer batch.
daemons a

send 0 o knoll lagoon inlet jetty
settle
send 0 q fjord lagoon heath
settle
send 1 x fjord grove heath ember
run a until publish
save copy
kill a
expire a
start a
skew a -600000
send 1 y amber birch cedar delta
settle
back copy
send 0 z amber birch cedar delta

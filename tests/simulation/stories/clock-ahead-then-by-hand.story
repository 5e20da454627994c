# An index whose lineage is ahead by a wrong clock comes back after a rebuild with a right one, which an offset set by hand lets begin an
# earlier lineage.
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
rebuild
run rebuild 400
run rebuild 400
start a
send 0 k ember fjord grove heath
settle
back copy
send 0 z ember fjord grove heath

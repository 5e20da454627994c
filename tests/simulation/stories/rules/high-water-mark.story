# Without the rule "high-water mark" this history ends badly.
partitions 1
daemons a

send 0 d2 fjord
send 0 d1 fjord
send 0 d0 fjord
settle
offsets 0 2

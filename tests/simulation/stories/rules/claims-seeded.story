# Without the rule "claims seeded" this history ends badly.
partitions 1
daemons a

save s1
send 2 d2 grove ember ember
send 0 d3 grove ember ember
run a 20
back s1
append 0 d3 knoll

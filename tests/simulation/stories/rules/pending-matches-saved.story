# Without the rule "pending matches saved" this history ends badly.
partitions 1
daemons a

send 1 d0 cedar lagoon delta knoll cedar amber delta
send 1 d1 cedar lagoon delta knoll cedar amber delta
append 1 d1 ember
run a until announce
fate a late
run a 1

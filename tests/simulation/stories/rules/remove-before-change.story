# Without the rule "remove before change" this history ends badly.
partitions 1
daemons a

send 0 d5 fjord
send 0 d5 lagoon

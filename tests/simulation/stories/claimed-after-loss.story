# A batch in progress claims a pair in an index that has gone back, although the alert of the pair is committed.

send 0 o knoll lagoon inlet jetty
send 1 p fjord grove heath ember
settle
send 1 q fjord lagoon heath
send 0 x amber birch cedar delta
settle
send 1 y amber birch cedar delta
run b until claim_pairs
save copy
settle
back copy
append 0 x knoll

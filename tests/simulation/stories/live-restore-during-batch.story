# Keys are put back under a daemon that has just compared the attempts and has not begun to write its batch.

send 0 o knoll lagoon inlet jetty
send 1 p fjord grove heath ember
settle
send 1 q fjord lagoon heath
settle
save copy
send 0 x amber birch cedar delta
settle
clock 20
send 1 y amber birch cedar delta
run b until insert_entries
back copy live
run b 6

# A batch that was indexed before the index went back is refused: the daemon that notices it joins the group anew.

send 0 o knoll lagoon inlet jetty
send 1 p fjord grove heath ember
settle
save copy
send 0 x amber birch cedar delta
send 1 y amber birch cedar delta
run a until publish
back copy
run b 40
run a 5

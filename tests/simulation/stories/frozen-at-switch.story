# A daemon that was frozen at a switch joins the group again with the index from before.

send 0 o amber birch cedar delta
settle
freeze a
prepare two 2
run prepare until complete
run prepare 9
switch two 2
start b
run b 40
wake a
settle
send 0 p knoll lagoon inlet jetty
send 1 q fjord grove heath ember
settle
send 1 r knoll lagoon inlet jetty
send 0 s fjord grove heath ember

# A daemon that was frozen while the index was rebuilt with other parameters goes on with its own parameters.

send 0 o amber birch cedar delta
settle
freeze a
rebuild 2
run rebuild until complete
run rebuild 9
start b
run b 40
wake a
settle
send 0 p knoll lagoon inlet jetty
send 1 q fjord grove heath ember
settle
send 1 r knoll lagoon inlet jetty
send 0 s fjord grove heath ember

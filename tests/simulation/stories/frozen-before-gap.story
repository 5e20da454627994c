# A daemon that was frozen while the index was rebuilt with other parameters must not fill a gap of this index.

send 0 o knoll lagoon inlet jetty
settle
freeze a
rebuild 2
run rebuild until complete
run rebuild 9
start b
run b 60
run b 60
send 0 p fjord grove heath ember
run b 60
send 0 q fjord lagoon heath
run b 60
save copy
send 0 x amber birch cedar delta
run b 60
kill b
expire b
back copy
wake a
run a 80
run a 80
run a 80
settle
send 1 z amber birch cedar delta

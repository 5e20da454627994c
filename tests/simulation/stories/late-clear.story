# A rebuild that lost its lease while it deletes wakes up after another process has completed the index.

send 0 x amber birch cedar delta
send 1 y knoll lagoon inlet jetty
settle
rebuild
run rebuild until clear
run rebuild 1
clock 70
start a
start b
run a 60
run b 60
run a 60
run b 60
run rebuild 20
send 1 z amber birch cedar delta
send 0 w knoll lagoon inlet jetty

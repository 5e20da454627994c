# The index is lost while an alert stands behind the open transaction of a daemon that was frozen in its commit.

send 0 x amber birch cedar delta
send 1 p fjord grove heath ember
settle
send 1 q fjord grove heath ember
run b until commit
send 0 z amber birch cedar delta
run a 40
freeze b
flush
run a 400
run a 400
append 0 x knoll

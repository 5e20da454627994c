# An index with other parameters is prepared beside running daemons, which are then replaced.

send 0 x amber birch cedar delta
send 1 y amber birch cedar delta
settle
prepare two 2
run prepare until insert_entries
send 1 z amber birch cedar delta
run a 20
run b 20
run prepare 400
run prepare 400
switch two 2
start a
start b
send 0 w amber birch cedar delta
settle
append 1 y knoll

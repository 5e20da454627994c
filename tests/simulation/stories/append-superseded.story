# A batch with two appends to a document is done again: the first one still publishes what it had found.
partitions 1
daemons a

send 0 x amber birch cedar delta ember fjord grove heath
send 0 y knoll
settle
append 0 y amber birch cedar delta ember fjord grove heath
append 0 y lagoon
run a until announce
fate a request lost
run a 4

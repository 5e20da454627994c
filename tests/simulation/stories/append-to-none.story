# An append to no document stays one when the batch, which also inserts the document, is done again.
partitions 1
daemons a

append 0 x amber birch cedar delta
send 0 x amber birch cedar delta
append 0 x fjord
run a until announce
fate a request lost
run a 4

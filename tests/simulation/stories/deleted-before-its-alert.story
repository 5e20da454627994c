# Two records are read again when their deletions are in the index: the saved alert has a cluster without sources.
partitions 1
daemons a
batch 4

send 0 x amber birch cedar delta
send 0 y amber birch cedar delta
delete 0 x
delete 0 y
run a until announce
kill a

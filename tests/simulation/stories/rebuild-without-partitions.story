# A daemon that has begun a rebuild and gets no partition when it joins anew does not go on with the rebuild.
partitions 1

run a until announce
send 0 x amber birch cedar delta
run b 4
run a 1
run a 8
send 0 y fjord grove heath ember
flush
run a until read_entries

# A daemon dies between the buckets and the buckets of exact copies; meanwhile another one handles the copy of a document
# that took the last place in its buckets.
partitions 2
daemons a b
bucket_cap 3

send 0 p amber birch amber birch
send 0 q amber birch amber birch amber birch
settle
send 0 x amber birch amber birch amber birch amber birch
send 1 w amber birch amber birch amber birch amber birch
run a until insert_copies
kill a
run b 200
start a

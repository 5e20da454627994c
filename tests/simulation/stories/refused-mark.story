# A high-water mark is refused when another partition of the batch moves, and the group is deleted.
batch 2
bucket_cap 3

settle
save s1
send 1 d0 fjord ember
back s1
send 0 d1 birch ember birch cedar
send 0 d2 birch ember birch cedar
send 1 d3 birch ember birch lagoon
run b 2
send 0 d4 fjord ember
run a until finish
run b 10
run b 40
settle
delete-group

# The copy that is put back is of an index in a rebuild, whose process is gone; its lease ends.

send 0 x amber birch cedar delta
settle
rebuild
run rebuild until insert_entries
save copy
run rebuild 400
run rebuild 400
back copy
start a
run a 20
send 1 y amber birch cedar delta

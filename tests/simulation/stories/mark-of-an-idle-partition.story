# The partition gets no record after a crash between the commit and the high-water mark, and its offset is set back.
partitions 1

send 0 x amber birch cedar delta
send 0 y amber birch cedar delta
run a 2
run a until finish
kill a
expire a
start a
settle
offsets 0 0
start a

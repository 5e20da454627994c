# A static member that was frozen and replaced wakes up before its fence: it takes the topic for one that was created
# again, because the end that it knows lies below the high-water mark that its successor has raised. A later version
# with an earlier time would then be of another partition, and be skipped.
partitions 1
daemons a
static True

send 0 w plum quartz river stone
settle
start a
send 0 x amber birch cedar delta
run a until fence
start a
run a 60
run a 60
send 0 y amber birch cedar delta
run a 60
run a- 6
aged 100 0 y fjord grove heath ember
settle
send 0 z fjord grove heath ember

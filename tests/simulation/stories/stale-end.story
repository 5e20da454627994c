# A static member that was frozen and replaced wakes up before its fence: it takes the topic for one that was created
# again, because the end that it knows lies below the high-water mark that its successor has raised.
partitions 1
daemons a
static True

send 0 x amber birch cedar delta
run a until fence
start a
send 0 o knoll lagoon inlet jetty
run a 40
send 0 y amber birch cedar delta
run a until announce
run a- 3

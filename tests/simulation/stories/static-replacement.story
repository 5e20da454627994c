# A static member is replaced in the middle of a batch, in the same generation, and its process goes on.
partitions 1
daemons a
static True

send 0 x amber birch cedar delta
run a until insert_and_look_up
start a
run a 40
send 0 x knoll lagoon inlet jetty
run a 40
run a- 1

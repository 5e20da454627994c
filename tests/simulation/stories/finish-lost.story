# The call that forgets pending matches after a commit is lost: the next fence forgets them.
partitions 1
daemons a

send 0 x amber birch cedar delta
send 0 y amber birch cedar delta
run a until finish
fate a request lost
run a 1
settle
send 0 z knoll lagoon inlet jetty

# A daemon dies between commit and finish: the next fence removes its pending matches.
partitions 1
daemons a

send 0 x amber birch cedar delta
send 0 y amber birch cedar delta
run a until finish
kill a
settle
send 0 o knoll lagoon inlet jetty

# Keys are put back before the first batch after a pause, of a daemon whose last call is older than the copy.

run a 9
run b 9
run a 9
run b 9
send 0 x amber birch cedar delta
settle
save copy
send 1 o knoll lagoon inlet jetty
run b 60
send 0 y knoll lagoon inlet jetty
run a until insert_entries
back copy live

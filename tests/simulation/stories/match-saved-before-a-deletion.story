# An alert that is published late names the incarnation that a match had when it was saved. A rebuild, which finds no
# record of the deletion, takes the later incarnation from an earlier alert.
daemons a

send 1 o knoll lagoon jetty
send 0 y amber birch cedar delta ember fjord
send 0 p inlet heath
settle
send 1 z amber birch cedar delta ember fjord
run a until announce
kill a
delete 0 y
send 0 y amber birch cedar delta ember fjord
send 0 w amber birch cedar delta ember fjord grove
settle
remove 0 3
flush
append 0 y tulip

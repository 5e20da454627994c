# As match-saved-before-a-deletion, but the record whose alert is published late is later than the others.
daemons a b

send 1 o knoll lagoon jetty
send 0 y amber birch cedar delta ember fjord
send 0 p inlet heath
settle
delete 0 y
send 0 y amber birch cedar delta ember fjord
send 0 w amber birch cedar delta ember fjord grove
send 1 z amber birch cedar delta ember fjord
run b until announce
run a 200
kill b
settle
remove 0 3
flush
append 0 y tulip

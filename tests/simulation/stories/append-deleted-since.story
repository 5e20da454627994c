# An append that is processed again after the document was deleted: its alert has no label.
partitions 1
daemons a

send 2 d2 knoll amber grove fjord
run a until commit
append 2 d2 jetty
send 1 d4 knoll amber grove fjord
delete 2 d2
run a 19
kill a

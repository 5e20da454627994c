# The alert of the new topic's document does not name its incarnation; its record has the offset of the old topic's record.
partitions 3
daemons a

send 2 d0 amber jetty fjord heath cedar knoll
delete 2 d0
send 1 d1 amber jetty fjord heath cedar knoll
settle
recreate late
run a 5
start a
run a 3
send 2 d0 amber jetty fjord heath cedar knoll
delete 2 d0

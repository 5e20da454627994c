# A batch is announced, and not published, in an index that has gone back by hours: its time is no sign of how far back
# the alerts are that the index does not know.

send 0 o knoll lagoon inlet jetty
send 1 p fjord grove heath ember
settle
send 0 q fjord lagoon heath
settle
save copy
send 1 x amber birch cedar delta
send 1 y amber birch cedar delta
settle
clock 7200
run a 20
run b 20
back copy
send 0 r delta grove
settle
append 1 y knoll

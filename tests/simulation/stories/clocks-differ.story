# The alert in the gap has an earlier time than the last commit that the index knows: the clocks of daemons differ.

skew a 60000
send 0 o knoll lagoon inlet jetty
send 1 p fjord grove heath ember
settle
send 0 q fjord lagoon heath
settle
save copy
send 1 x amber birch cedar delta
send 1 y amber birch cedar delta
settle
back copy
append 1 y knoll

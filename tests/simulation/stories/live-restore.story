# Keys are put back under running daemons, and no connection ends: a daemon whose last call is older notices nothing.

send 0 o amber birch cedar delta
send 1 p amber birch cedar delta
settle
save copy
send 0 x knoll lagoon inlet jetty
settle
back copy live
send 1 y knoll lagoon inlet jetty
settle
send 0 z fjord grove heath ember

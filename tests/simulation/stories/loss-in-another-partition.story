# The index goes back, and has lost a document of another daemon's partition: this daemon must not go on either.

send 0 o knoll lagoon inlet jetty
send 1 p fjord grove heath ember
settle
save copy
send 1 y amber birch cedar delta
settle
back copy live
send 0 z amber birch cedar delta
run a 60

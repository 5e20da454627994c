# After a loss that nothing has noticed yet, another partition writes a document of the gap, and commits nothing.

send 0 o knoll lagoon inlet jetty
settle
send 0 x amber birch cedar delta
settle
save copy
send 0 x fjord grove heath ember
settle
back copy
send 1 x fjord grove heath ember
run b until announce
kill b
expire b
settle
send 0 y fjord grove heath ember

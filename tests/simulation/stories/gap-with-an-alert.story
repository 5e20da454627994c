# The gap of an index that went back has a pair that was published; one of its documents is continued.

send 0 o knoll lagoon inlet jetty
settle
send 0 x amber birch cedar delta
settle
save copy
send 1 y amber birch cedar delta
settle
back copy
settle
append 0 x knoll

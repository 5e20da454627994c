# The gap of an index that went back has a pair that a daemon whose clock is ten minutes late has published.

send 0 o knoll lagoon inlet jetty
settle
send 0 x amber birch cedar delta
settle
save copy
skew a -600000
skew b -600000
send 1 y amber birch cedar delta
settle
back copy
settle
append 0 x knoll

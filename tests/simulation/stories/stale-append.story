# A daemon that was idle for over an hour appends to a document in an index that has gone back, before it notices: the
# index does not know its last call any more. The version that the gap restores must not be skipped.

send 0 o amber birch cedar delta
send 1 p knoll lagoon inlet jetty
settle
send 0 x fjord grove heath ember
settle
save copy
send 0 x amber birch cedar delta
settle
clock 4000
run a 20
run b 20
back copy
append 0 x knoll
settle
send 1 z amber birch cedar delta knoll

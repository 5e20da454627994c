# A rebuilt index counts the incarnations of a topic on in a partition without a commit.

send 0 o knoll lagoon inlet jetty
send 1 p fjord grove heath ember
settle
recreate
send 0 q tulip umber valley willow
settle
send 1 x amber birch cedar delta
delete 1 x
send 1 x amber birch cedar delta
run a until publish
run b until publish
send 0 y amber birch cedar delta
run b 200
kill a
flush

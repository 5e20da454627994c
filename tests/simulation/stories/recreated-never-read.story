# Incarnations are counted on also in a partition that was never read, whose first batch follows the first commit of the
# topic that was created again at once.

send 0 o fjord grove heath ember
settle
recreate
send 0 q knoll lagoon inlet jetty
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

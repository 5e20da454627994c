# A rebuild counts the incarnations of a topic from 0 again, and names a document that has returned differently.

send 0 o knoll lagoon inlet jetty
send 1 p fjord grove heath ember
settle
recreate
send 0 x amber birch cedar delta
delete 0 x
send 0 x amber birch cedar delta
send 1 y amber birch cedar delta
settle
flush
append 0 x knoll

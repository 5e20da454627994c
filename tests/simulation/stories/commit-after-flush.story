# A batch that was indexed before the index was flushed is about to be committed while another daemon rebuilds the index.

send 0 o amber birch cedar delta
send 1 p knoll lagoon inlet jetty
settle
send 1 y fjord grove heath ember
run b until publish
flush
clock 10
run a 23
run b 60
settle
send 0 z fjord grove heath ember

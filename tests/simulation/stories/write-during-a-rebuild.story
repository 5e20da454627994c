# A daemon goes on with a batch while another one builds the lost index, and is refused by the new fences.

send 0 x amber birch cedar delta
send 1 p fjord grove heath ember
settle
send 1 q fjord grove heath ember
run b until insert_entries
flush
send 0 z knoll lagoon inlet jetty
run a until complete
run a until complete
run b 5

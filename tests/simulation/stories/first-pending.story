# The first uncommitted record of a partition has pending matches, the document of which has changed, when another
# daemon takes the partition over; then the document returns to its text.

send 0 x amber birch cedar delta
send 1 o knoll lagoon inlet jetty
settle
send 1 y amber birch cedar delta
run b until announce
kill b
send 0 x fjord grove heath ember
run a 40
expire b
run a 80
run a 80
run a 80
send 0 x amber birch cedar delta

# Without the rule "add before read" this history ends badly.

run b 1
send 1 d7 ember birch lagoon jetty lagoon
send 0 d8 ember birch lagoon jetty lagoon
run b 3
run a until insert_and_look_up
run b until claim_pairs

# A copy of the index is put back that has the fence of a daemon whose partition another daemon has taken over and
# committed since. The first daemon announces a batch of this partition, which Kafka refuses: the index goes on to lack
# the commit.

daemons a b

send 2 d0 knoll
run a until clear
save s1
send 0 d1 knoll
run b until claim_pairs
run a 7
back s1
send 1 d3 ember
run a until replace_entries
run a 7
send 1 d4 knoll
run b until set_clusters
run b until save_pending_matches
back s1

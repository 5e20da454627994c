# Without the rule "fence" this history ends badly.
partitions 1

send 1 d1 cedar lagoon delta knoll cedar amber delta
append 1 d1 lagoon
run a until remove_from_buckets
fate a late
run a 5
run b until insert_and_look_up
run b 11
late 1
send 1 d3 cedar lagoon delta knoll cedar amber delta

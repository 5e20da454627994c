# Retention removes the later version of a document, in another partition, and a lost index has the earlier one again.
partitions 3
batch 1

send 2 d1 knoll amber grove heath
save s2
send 0 d1 inlet
run b 8
run b 11
back s2
remove 0 5
send 0 d7 amber grove heath

# A deletion is compacted away while the document that came again is unread: a rebuilt index counts it as a first one.
grown False

delete 0 d0
save s2
send 0 d0 lagoon birch ember grove
send 1 d3 lagoon birch ember jetty
run a until claim_pairs
run b 25
back s2
compact 0


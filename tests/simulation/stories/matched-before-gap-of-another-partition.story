# A document is sent again to another partition, where the record lies in the gap at a smaller offset.
partitions 3
daemons a b c

send 0 d0 heath heath delta birch jetty ember
run b 1
run a 4
run b 3
settle
save s1
send 2 d0 amber
settle
back s1
send 0 d3 heath heath delta birch jetty ember


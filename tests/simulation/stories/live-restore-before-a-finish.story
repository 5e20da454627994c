# The index goes back under a running daemon, and only the refused end of a batch shows it.
daemons a

send 1 d0 amber cedar inlet ember
run a until hold
save s3
save s4
back s4 live
send 0 d1 cedar
run a until read_entries
send 0 d2 amber cedar inlet ember
run a 5
run a 5
run a 2
back s3 live
send 1 d3 amber cedar inlet ember


# The index goes back to an earlier copy before a rebalance, and the next owner takes over at once.

rebalance
send 2 d63 inlet
settle
save s14
send 0 d65 inlet ember inlet knoll knoll
settle
back s14
send 0 d66 cedar
run b 6
send 1 d69 inlet ember inlet knoll knoll
run b 3

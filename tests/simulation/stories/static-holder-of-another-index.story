# A static member of another index is refused, closes its clients, and its session ends before its partition is read.
daemons a
grown False
static True

run a 3
send 1 d3 heath
append 0 d2 ember
freeze a
switch p4 1
start a
start b
run b until finish

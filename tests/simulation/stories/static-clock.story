# A static member restarts with its clock behind: its attempt ids do not ascend, and hide an older copy.
daemons a
static True

send 0 o amber birch cedar delta
settle
send 0 p fjord grove heath ember
settle
save copy
kill a
start a
skew a -600000
run a 6
send 0 x knoll lagoon inlet jetty
settle
kill a
start a
back copy
send 1 y knoll lagoon inlet jetty

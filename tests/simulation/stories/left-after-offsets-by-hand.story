# Offsets are set by hand; another index is built without a committed attempt, used, and left again for the first one.

partitions 1
daemons a
batch 1
send 0 a amber birch cedar delta ember
send 0 b fjord glade heath inlet jetty
send 0 c knoll lagoon marsh north olive
settle
offsets 0 3
switch q 1
settle
send 0 y plum quartz river stone tulip
settle
switch one 1
send 0 z plum quartz river stone tulip

# The group is deleted, so that nothing of the first index is committed; another index is begun and left again.

partitions 1
daemons a
batch 3
send 0 a amber birch cedar delta ember
settle
send 0 b fjord glade heath inlet jetty
settle
send 0 c knoll lagoon marsh north olive
settle
delete-group
switch q 1
settle
send 0 y plum quartz river stone tulip
settle
switch one 1
send 0 z plum quartz river stone tulip

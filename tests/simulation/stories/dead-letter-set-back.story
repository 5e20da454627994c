# A record that was a dead letter is read again after offsets were set back, and is no dead letter a second time.
partitions 1
daemons a

append 0 x amber birch cedar delta
send 0 o knoll lagoon inlet jetty
settle
offsets 0 0

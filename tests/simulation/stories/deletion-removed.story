# A rebuild finds no record of a deletion: the pair from before it keeps silent the document that comes again.
daemons a

send 0 x amber birch cedar delta
send 1 y amber birch cedar delta
settle
delete 0 x
send 0 o fjord grove heath ember
settle
remove 0 2
flush
send 0 x amber birch cedar delta

# A rebuild finds no record of a deletion after which a document returned; the alerts name its incarnation.
partitions 1
daemons a

send 0 x amber birch cedar delta
settle
delete 0 x
send 0 x amber birch cedar delta
settle
send 0 y amber birch cedar delta
settle
compact 0
flush
append 0 x knoll

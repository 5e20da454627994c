# The earliest document of a cluster has expired; the first one lives on by appends.
partitions 1
daemons a
window_s 3600

send 0 x amber birch cedar delta ember fjord
aged 600 0 e amber birch cedar delta ember fjord
settle
clock 3500
send 0 y amber birch cedar delta ember fjord
settle
clock 1400
append 0 x grove
settle
clock 2600
send 0 z amber birch cedar delta ember fjord

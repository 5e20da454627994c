# Of a document that has returned, an alert that is published after a later version names the incarnation: no later
# alert does, and a rebuild finds no record of the deletion.
daemons a
batch 5

send 1 x amber birch cedar delta ember fjord grove heath inlet
send 0 y tulip umber
delete 0 y
send 0 y amber birch cedar delta ember fjord
send 1 w delta ember fjord grove heath inlet
settle
send 0 y birch cedar delta ember fjord grove heath inlet
send 0 y tulip umber valley
run a until announce
kill a
settle
remove 0 2
flush
send 0 y amber birch cedar delta ember fjord

# A deletion in the gap whose record is gone: the gap leaves the document in the index.

send 0 x amber birch cedar delta
send 0 o knoll lagoon inlet jetty
settle
send 1 p fjord grove heath ember
send 0 q fjord grove heath ember
settle
save copy
delete 0 x
send 0 r knoll lagoon fjord grove
send 0 s jetty heath amber
settle
compact 0
back copy
send 1 z amber birch cedar delta

# The index goes back to before the topic was created again: the announced attempt says nothing about the new topic.

send 0 o knoll lagoon inlet jetty
send 0 p fjord grove heath ember
settle
send 0 q fjord lagoon heath
settle
save copy
recreate
send 0 x amber birch cedar delta
send 0 r delta grove
send 0 s heath ember
send 0 t inlet knoll
settle
back copy
send 1 z amber birch cedar delta

# Without the rule "fence" this history ends badly.

send 1 w plum quartz
settle
send 1 d0 amber
send 1 d0 amber knoll
run b 8
freeze b
run a 60

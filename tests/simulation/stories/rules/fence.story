# Without the rule "fence" this history ends badly.

send 1 d0 amber
send 1 d0 amber knoll
run b 12

# Shortcuts; the scripts are the real thing.
.PHONY: check server setup demo

check:
	script/test

server:
	script/server

setup:
	script/setup --dev

demo:
	.venv/bin/egressd lab demo

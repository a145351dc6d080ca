# Prints what the failed tests in the output of go test reported: the first lines of each message with its file and line.
# Two test runs that write at the same time can mix, so a message of another test may be among them.
function keep(line) {
	if (wanted != "") messages[wanted] = messages[wanted] line "\n"
}
/^=== (RUN|NAME|CONT) / { wanted = $3; lines = 0; next }
/^=== PAUSE / { wanted = ""; next }
/^ *--- (PASS|SKIP): / { wanted = ""; next }
/^ *--- FAIL: / { failed[++count] = wanted = $3; lines = 0; next }
/^ +[A-Za-z0-9_]+_test\.go:[0-9]+: / { lines = 4; keep($0); next }
/^        / && lines > 0 { lines--; keep($0) }
END {
	for (i = 1; i <= count; i++) {
		if (messages[failed[i]] != "") printf "%s\n%s", failed[i], messages[failed[i]]
	}
}

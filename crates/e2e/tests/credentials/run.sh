# Starts Atoll ($ATOLL or, in a fence, $FENCED) with the real key in its environment alone,
# and looks for it while the program waits for its input. With KEYLESS the key is printed by a
# command instead, which then waits until it was looked for. Arguments: the directory of the
# world, then those of `atoll run`.
world=$1
shift
mkfifo "$world/go"
: >"$world/output"
(
    if test -z "$KEYLESS"; then
        GITHUB_TOKEN=$(cat "$world/real")
        export GITHUB_TOKEN
    fi
    exec "${FENCED:-$ATOLL}" run --discard "$@" <"$world/go" >"$world/output"
) &
atoll=$!
exec 9>"$world/go"
while ! grep -q READY "$world/output" && kill -0 $atoll 2>/dev/null; do sleep 0.1; done
while test -n "$KEYLESS" && ! test -e "$world/printed" && kill -0 $atoll 2>/dev/null; do sleep 0.1; done
sed -n 's/^KEY=//p' "$world/output" >"$world/placeholder"
python3 "$world/search.py" $atoll "$world/real" "$world/placeholder" >"$world/searched" 2>&1
: >"$world/looked"
echo go >&9
exec 9>&-
status=0
wait $atoll || status=$?
cat "$world/output"
exit $status

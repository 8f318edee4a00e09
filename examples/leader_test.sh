#!/usr/bin/env bash
# Starts two leaders, kills with SIGKILL the one that leads, and waits until the
# other does. Usage: leader_test.sh <program>
set -u

program="$1"
limit=40 # seconds for each thing that is waited for
logs="$(mktemp -d)"
declare -A pid=()

clean_up() {
  local node
  for node in "${!pid[@]}"; do
    kill -9 "${pid[$node]}" 2>/dev/null
  done
  wait 2>/dev/null
  rm -rf "$logs"
}
trap clean_up EXIT

fail() {
  echo "FAILED: $*"
  local node
  for node in a b; do
    echo "-- what $node said:"
    cat "$logs/$node" 2>/dev/null
  done
  exit 1
}

free_port() {
  local port
  while :; do
    port=$((20000 + (RANDOM % 6000) * 2 + $1))
    (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null || { echo "$port"; return; }
  done
}

start() { # name port peer peer's port
  "$program" "--pawl.name=$1" "--pawl.listen=127.0.0.1:$2" \
    "--pawl.peers=$3=127.0.0.1:$4" --seconds=100 >"$logs/$1" 2>&1 &
  pid[$1]=$!
}

wait_for() { # node, text
  local tries=$((limit * 10))
  until grep -q "$2" "$logs/$1"; do
    kill -0 "${pid[$1]}" 2>/dev/null || return 1
    [ $((tries -= 1)) -gt 0 ] || return 1
    sleep 0.1
  done
}

# Somebody may take a port between the look and its use: then try others.
for attempt in 1 2 3; do
  port_a="$(free_port 0)"
  port_b="$(free_port 1)"
  start a "$port_a" b "$port_b"
  start b "$port_b" a "$port_a"
  if wait_for a "a: [ab] leads" && wait_for b "b: [ab] leads"; then
    break
  fi
  [ "$attempt" -lt 3 ] || fail "nobody leads"
  kill -9 "${pid[a]}" "${pid[b]}" 2>/dev/null
  wait "${pid[a]}" "${pid[b]}" 2>/dev/null
done

leader="$(sed -n 's/^a: \([ab]\) leads$/\1/p' "$logs/a" | tail -n 1)"
other=$([ "$leader" = a ] && echo b || echo a)
wait_for "$leader" "$leader: the service starts" \
  || fail "$leader leads without a service"
wait_for "$other" "$other: $leader leads" \
  || fail "$other does not know that $leader leads"
if grep -q "the service starts" "$logs/$other"; then
  fail "the service runs twice"
fi

echo "$leader leads, and is killed"
kill -9 "${pid[$leader]}"
wait "${pid[$leader]}" 2>/dev/null
wait_for "$other" "$other: the service starts" || fail "$other did not take over"
wait_for "$other" "$other: $other leads" || fail "$other does not say so"

echo "$other leads, and is asked to end"
kill -TERM "${pid[$other]}"
wait "${pid[$other]}"
status=$?
[ "$status" -eq 0 ] || fail "$other ended with exit status $status"
wait_for "$other" "$other: the end" || fail "$other did not come to its end"
unset 'pid[a]' 'pid[b]'
echo "the leader was killed and the other took over"

#!/bin/sh
# Runs on a robot: joins with its invitation, and waits for work.
set -eu
until [ -f "$RESULTS/$LINKEMU_HOST.invitation" ]; do sleep 0.1; done
exec $(cat "$RESULTS/$LINKEMU_HOST.invitation") --name "$LINKEMU_HOST" >"$RESULTS/$LINKEMU_HOST.log" 2>&1

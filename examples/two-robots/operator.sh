#!/bin/sh
# The operator's commands on the base, for $1 seconds. The invitations reach the robots by files here.
set -eu
nervure up --name base --address "$LINKEMU_ADDRESS:7700" >"$RESULTS/base.log" 2>&1 &
until nervure machine list >"$RESULTS/machines.txt" 2>&1; do sleep 0.1; done
for robot in one two; do
    nervure machine invite >"$RESULTS/$robot.part"
    mv "$RESULTS/$robot.part" "$RESULTS/$robot.invitation"
done
until [ "$(grep -c 'robot *reachable' "$RESULTS/machines.txt")" = 2 ]; do
    sleep 0.2
    nervure machine list >"$RESULTS/machines.txt"
done
cat "$RESULTS/machines.txt"
nervure start dataflow.yml --name two-robots "camera-one.after=$2" "camera-two.after=$2"
sleep "$1"
nervure stop -d two-robots --json >"$RESULTS/stop.json"

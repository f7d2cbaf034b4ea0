# target/bench/bench.json
include "common";

def called($contestant): map(select(.contestant == $contestant))[0]
    | if . == null then "" else "\(.p50 | number) / \(.p99 | number) (\(.rate | number))" end;

"Milliseconds, median / 99th percentile (calls a second). \(.size.pods) pods in each of \(.size.rounds) rounds; \(.size.few_pods) where calls come one at a time.",
"",
(.cells as $cells
    | [$cells[].contestant] | reduce .[] as $one ([]; if index([$one]) then . else . + [$one] end)
    | . as $contestants
    | [$cells | group_by([.verb, .ports, .at_once])[]
        | [.[0].verb, (.[0].ports | tostring), (.[0].at_once | tostring)] + [. as $calls | $contestants[] | . as $one | $calls | called($one)]]
    | table(["verb", "other pods", "at once"] + $contestants)),
"",
"Where the processors' time of one ADD goes, milliseconds:",
"",
([.cells[] | select(.verb == "ADD" and .ports == 0 and (.contestant == "floor" or .contestant == "ours") and (.cpu | length) > 1)
    | [(.at_once | tostring), .contestant] + [.cpu[(("caller", "server", "ovsdb_server", "vswitchd", "ovn_controller"))] | number]]
    | table(["at once", "", "plugin", "server", "ovsdb-server", "ovs-vswitchd", "ovn-controller"])),
"",
"Stages of an ADD alone, milliseconds, median (99th percentile):",
"",
([.cells[] | select(.verb == "ADD" and .ports == 0 and .at_once == 1 and .contestant == "ours").parts | to_entries[]
    | [.key, "\(.value.p50 | number) (\(.value.p99 | number))"]] | table(["stage", ""])),
goals

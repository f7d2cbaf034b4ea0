# target/services/services.json
include "common";

def answered: map(.answered);
def listed: map(.listed);
def after: map(.answered - .listed);
def rate: map(length / (add / 1e6)) | percentile(50);
def ways: ["pod to the world", "world to NodePort", "host to ClusterIP on the other node",
    "pod to ClusterIP on the other node", "the same, straight to the pod"];

"Milliseconds, median (90th percentile), \(.rounds.ours | length) rounds:",
"",
([["pod ready, its Service answers on the other node", (.rounds.reference, .rounds.ours | answered | median_and(90))],
  ["of it, until an EndpointSlice has the pod", (.rounds.reference, .rounds.ours | listed | median_and(90))],
  ["of it, from there on", (.rounds.reference, .rounds.ours | after | median_and(90))]]
    | table(["", "kube-proxy", "this"])),
"",
"Requests a second, Mbit/s of one stream. Packets of kube-proxy's side take the kernel, packets of this side the userspace datapath:",
"",
([.paths | to_entries[] | [ways[.key], (.value.reference, .value.ours | "\(.microseconds | rate | number), \(.megabits | percentile(50) | number)")]]
    | table(["", "kube-proxy", "this"]))

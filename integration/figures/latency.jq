# target/latency/latency.json
include "common";

"Milliseconds, median (90th percentile). The floor is the same rows, written by a bare transaction.",
"",
([(.measured[] | . as $of
    | ("created", "added", "removed") as $change
    | ["\({"created": "Service created, its address answers", "added": "endpoint added, first connection to it", "removed": "endpoint removed, last connection to it"}[$change])",
       ($of.others | tostring), ($of.floor, $of.ours | map(.[$change]) | median_and(90))]),
  (.policies[] | . as $of
    | ("forbidden", "allowed") as $change
    | ["policy created, \({"forbidden": "last connection that it forbids", "allowed": "first connection that it allows"}[$change])",
       ($of.others | tostring), ($of.floor, $of.ours | map(.[$change]) | median_and(90))])]
    | table(["change", "others there", "floor", "this"])),
goals

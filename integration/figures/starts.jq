# target/latency/network-policy.json
include "common";

def of(f): map(f) | "\(percentile(50) | number) (\(percentile(99) | number))";

"Milliseconds, median (99th percentile).",
"",
([.measured.starts | . as $starts
    | ("without", "first", "further") as $kind
    | [{"without": "without policies", "first": "the first pod with twenty policies on its node", "further": "the second one"}[$kind],
       ($starts[$kind] | of(.added), of(.answered), of(.added + .answered))]]
    | table(["a pod starts", "ADD", "from its return to the first answer", "both"])),
"",
([.measured.workload[]
    | [{"AtARate": "20 a second", "AtOnce": "all at once"}[.arrival], (.policies | length | tostring), (.policies | of(.created), of(.min_ready), of(.ready))]]
    | table(["policies come", "policies", "request answered", "first connection", "last one (ready)"])),
goals

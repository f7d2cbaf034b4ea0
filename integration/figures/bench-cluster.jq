# target/bench/bench-cluster.json
include "common";

"Medians of \(.rounds) rounds.",
"",
([.lines[] | [(.pods | tostring), .network, (.median_ready, .all_ready, .all_gone, .add_ms, .del_ms | number)]]
    | table(["pods at once", "network", "median ready, s", "all ready, s", "all gone, s", "mean ADD, ms", "mean DEL, ms"]))

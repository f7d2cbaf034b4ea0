# target/soak/soak.json
include "common";

"\(.soak.cycles) cycles in \(.soak.seconds | round) s.",
"",
([.soak.trends[] | select(.holds != null) | [.quantity, (.first, .last | number), (.slope | number), if .holds then "held" else "**missed**" end]]
    | table(["", "first", "last", "for each 1,000 cycles", ""]))

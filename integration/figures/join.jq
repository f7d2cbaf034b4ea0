# target/scale/join.json
include "common";

([["a node's last row after its annotation, median (p99)", "\(.waits.p50 | number) (\(.waits.p99 | number)) ms"],
  ["\(.nodes) nodes posted in", "\(.posted | number) s; the last row \(.last | number) ms after it"],
  ["processor time of the first and of the second half", "\(.halves[0].cpu | number) s, \(.halves[1].cpu | number) s"],
  ["memory", "\(.usage.rss | number) MB"],
  ["restart until ready; written", "\(.restart.ready | number) s; \(.restart.transactions) transactions"]]
    | table(["", ""])),
goals

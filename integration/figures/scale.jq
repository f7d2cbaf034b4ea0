# target/scale/scale.json
include "common";

(.sizes[]
    | "\(.nodes) nodes, \(.pods) pods\(if .policies then ", \(.policies.policies) policies" else "" end)\(if .services then ", \(.services.services) Services" else "" end):",
      "",
      (. as $of | (.floor.patches / .floor.seconds) as $floor | ([.converged.annotated, .converged.ports] | max) as $converged
        | [["API server alone: annotations a second", ($floor | number)],
           ["from an empty database to converged", "\($converged | number) s, \($converged * $floor / $of.pods | number) × what the API server alone takes"],
           ["processor time for each pod of it", "\($of.converged.controller.cpu * 1000 / $of.pods | number) ms"],
           ["restart until ready; written", "\($of.restart.ready | number) s; \($of.restart.transactions) transactions"],
           ["empty northbound database filled", "\($of.replaced.seconds | number) s"],
           ["memory: converged; in the end; peak", "\($of.converged.controller.rss | number); \($of.steady.rss | number); \([$of.converged.controller.peak_rss, $of.steady.peak_rss] | max | number) MB"]]
        + [$of.latencies[]
            | ["\(.rate) pods/s: port and annotation are there, median (p99)", "\(.served.p50 | number) (\(.served.p99 | number)) ms"],
              ["\(.rate) pods/s: processor time of a pod's events", "\(.cpu | number) ms"]]
        + (if $of.policies then $of.policies
            | [["a policy for \(.crowd) pods: all isolated; all open again", "\(.isolated | number); \(.opened | number) ms"],
               ["a namespace loses a label, and gets it back (\(.addresses_moved) addresses)", "\(.left | number); \(.came | number) ms"]]
           else [] end)
        + (if $of.services then $of.services
            | [["restart with Services until ready; written", "\(.ready | number) s; \(.transactions) transactions"],
               ["empty northbound database filled with them", "\(.filled | number) s"],
               ["memory that they add", "\(.memory | number) MB"],
               ["\(.rate) changed slices/s: the row is committed, median (p99)", "\(.changed.p50 | number) (\(.changed.p99 | number)) ms"]]
           else [] end)
        | table(["", ""]))),
goals

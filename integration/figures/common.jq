# What the tables of every command share.

# Three digits that mean something.
def number:
    if . == null then error("a figure is missing")
    elif . >= 100 then round
    elif . >= 10 then . * 10 | round / 10
    else . * 100 | round / 100 end
    | tostring;

# The nearest rank, as the programs that measure take it.
def percentile(percent): sort | .[([length * percent / 100 | ceil, 1] | max) - 1];
def median_and(percent): "\(percentile(50) | number) (\(percentile(percent) | number))";

def row: "| " + join(" | ") + " |";
def table($heads): ($heads | row), ($heads | map("---") | row), (.[] | row);

def goals:
    "",
    ([.gates[] | [.demand, .found // "\(.measured) (\(.goal))", if .holds then "held" else "**missed**" end]]
        | if length == 0 then empty else table(["goal", "measured", ""]) end);

def environment:
    "\(.cpus) processors (\(.cpu)), Linux \(.kernel), load \(.load_before | split(" ")[0]) before and \(.load_after | split(" ")[0]) after."
    + " Open vSwitch \(.open_vswitch) (\(.datapath)), OVN \(.ovn).";

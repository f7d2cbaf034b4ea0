//! The result of a run: text for the terminal, and a file of figures, whose fields are those of
//! [`Report`].

use std::fmt;

use serde::Serialize;

use super::{
    figures::{Converged, Figures, Latency, Policies, PolicyRows, Restart, Rows, Services},
    process::Usage,
};
use crate::report::{environment::Environment, gate::Gate};

/// The file of a run's figures.
#[derive(Debug, Serialize)]
pub(crate) struct Report<M> {
    environment: Environment,
    #[serde(flatten)]
    measured: M,
    gates: Vec<Gate>,
}

/// The figures of each size.
#[derive(Debug, Serialize)]
pub(crate) struct Sizes {
    pub(crate) sizes: Vec<Figures>,
    /// The first size with an exception in every block of its policies.
    pub(crate) with_exceptions: Option<Figures>,
    /// The first size with several times its policies.
    pub(crate) with_more_policies: Option<Figures>,
}

impl<M> Report<M> {
    pub(crate) fn new(environment: Environment, measured: M, gates: Vec<Gate>) -> Self {
        Self { environment, measured, gates }
    }

    /// Whether every gate holds.
    pub(crate) fn holds(&self) -> bool {
        self.gates.iter().all(|gate| gate.holds)
    }
}

impl Sizes {
    /// Every goal.
    pub(crate) fn gates(&self) -> Vec<Gate> {
        let Some((first, further)) = self.sizes.split_first() else { return Vec::new() };
        let mut gates = Gate::of(first);
        // The first size has the absolute goals; the further sizes are only compared with each
        // other.
        let mut further: Vec<&Figures> = further.iter().collect();
        further.sort_by_key(|figures| figures.pods);
        if let [smallest, .., largest] = further[..] {
            gates.extend(Gate::of_sizes(smallest, largest));
        }
        let (except, more) = (self.with_exceptions.iter(), self.with_more_policies.iter());
        gates.extend(except.flat_map(|except| Gate::of_exceptions(first, except)));
        gates.extend(more.flat_map(|more| Gate::of_more_policies(first, more)));
        gates
    }
}

fn size(f: &mut fmt::Formatter<'_>, figures: &Figures) -> fmt::Result {
    let Figures {
        nodes,
        pods,
        created_per_second,
        floor,
        converged,
        restart,
        replaced,
        latencies,
        steady,
        rows,
        services,
        policies,
    } = figures;
    let floor_seconds = floor.seconds_of(*pods);
    let Converged {
        annotated,
        ports,
        transactions,
        controller,
        api_server_cpu,
        etcd_cpu,
        northbound_cpu,
    } = converged;
    let per_pod = |cpu: f64| cpu * 1e3 / *pods as f64;
    writeln!(f, "{nodes} nodes, {pods} pods\n")?;
    writeln!(
        f,
        "  API server: {created_per_second:.0} pods/s created; \
         floor {:.0} annotations/s, {floor_seconds:.2} s for all",
        floor.per_second()
    )?;
    writeln!(
        f,
        "  from nothing: {:.2} s ({:.2} × the floor): \
         ports {ports:.2} s, annotations {annotated:.2} s; {transactions} transactions",
        converged.seconds(),
        converged.seconds() / floor_seconds
    )?;
    writeln!(
        f,
        "    CPU per pod, ms: control plane {:.3}, API server {:.3}, etcd {:.3}, northbound {:.3}",
        per_pod(controller.cpu),
        per_pod(*api_server_cpu),
        per_pod(*etcd_cpu),
        per_pod(*northbound_cpu)
    )?;
    let Restart { ready, served, transactions, pod_events, cpu } = restart;
    writeln!(
        f,
        "  restart: ready {ready:.2} s, a new pod served {served:.2} s; \
         {transactions} transactions, {pod_events} pods written, {cpu:.2} s CPU"
    )?;
    writeln!(
        f,
        "  empty northbound database: filled after {:.2} s; {} transactions, {} pods written",
        replaced.seconds, replaced.transactions, replaced.pod_events
    )?;
    let Usage { rss, peak_rss, file, .. } = steady;
    writeln!(
        f,
        "  memory, MB: {:.1} converged (peak {:.1}); {rss:.1} in the end (peak {peak_rss:.1}); \
         {:.1} and {file:.1} of it are pages of the executable",
        controller.rss, controller.peak_rss, controller.file
    )?;
    let Rows { pod_ports, other_ports, switches, nodes_with_subnets } = rows;
    writeln!(
        f,
        "  rows in the end: {pod_ports} ports of pods, {other_ports} others, {switches} switches; \
         {nodes_with_subnets} nodes with subnets\n"
    )?;
    if let Some(figures) = policies {
        of_policies(f, figures)?;
    }
    if let Some(figures) = services {
        of_services(f, figures)?;
    }
    if latencies.is_empty() {
        return Ok(());
    }
    writeln!(
        f,
        "  {:<10}{:>6}{:>24}{:>24}{:>24}{:>24}{:>10}{:>14}",
        "pods/s",
        "pods",
        "port, ms",
        "isolated, ms",
        "annotation, ms",
        "all, ms",
        "CPU, ms",
        "transactions"
    )?;
    writeln!(
        f,
        "  {:<16}{}{:>10}",
        "",
        format!("{:>8}{:>8}{:>8}", "p50", "p99", "max").repeat(4),
        "per pod"
    )?;
    for Latency { rate, pods, port, isolated, annotation, served, cpu, transactions } in latencies {
        write!(f, "  {rate:<10}{pods:>6}")?;
        for percentiles in [port, isolated, annotation, served] {
            write!(f, "{:>8.1}{:>8.1}{:>8.1}", percentiles.p50, percentiles.p99, percentiles.max)?;
        }
        writeln!(f, "{cpu:>10.2}{transactions:>14}")?;
    }
    writeln!(f)
}

fn of_policies(f: &mut fmt::Formatter<'_>, figures: &Policies) -> fmt::Result {
    let Policies {
        policies,
        addresses_moved,
        left,
        came,
        relabel_cpu,
        relabel_transactions,
        crowd,
        isolated,
        opened,
        crowd_cpu,
        rows: PolicyRows { acls, groups, sets, addresses },
    } = figures;
    writeln!(
        f,
        "  {policies} policies: {acls} ACLs, {groups} port groups, {sets} address sets with {addresses} addresses"
    )?;
    writeln!(
        f,
        "    a namespace loses a label: {addresses_moved} addresses left after {left:.1} ms; with it again: {came:.1} ms; \
         {relabel_transactions} transactions, {relabel_cpu:.2} s CPU"
    )?;
    writeln!(
        f,
        "    a policy for {crowd} pods: isolated after {isolated:.1} ms, opened after {opened:.1} ms; {crowd_cpu:.2} s CPU\n"
    )
}

fn of_services(f: &mut fmt::Formatter<'_>, figures: &Services) -> fmt::Result {
    let Services {
        services,
        backends,
        created_per_second,
        behind,
        memory,
        filled,
        ready,
        transactions,
        pod_events,
        cpu,
        changes,
        rate,
        changed,
        rows,
        database,
    } = figures;
    writeln!(f, "  {services} Services with {backends} endpoints each beside them:")?;
    writeln!(
        f,
        "    created {created_per_second:.0}/s, the last row {behind:.2} s after the last answer; {memory:.1} MB more"
    )?;
    writeln!(
        f,
        "    empty northbound database: filled after {filled:.2} s; {rows} load balancers, {database:.1} MB"
    )?;
    writeln!(
        f,
        "    restart: ready {ready:.2} s, {transactions} transactions, {pod_events} pods written, {cpu:.2} s CPU"
    )?;
    writeln!(
        f,
        "    {changes} changes of slices at {rate}/s: {:.1} ms p50, {:.1} p99, {:.1} max\n",
        changed.p50, changed.p99, changed.max
    )
}

/// What was measured ends with an empty line.
impl<M: fmt::Display> fmt::Display for Report<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { environment, measured, gates } = self;
        writeln!(
            f,
            "\n{environment}\n\n{measured}{:<72}{:>12}   {:<12} verdict",
            "", "measured", "goal"
        )?;
        gates.iter().try_for_each(|gate| writeln!(f, "{gate}"))
    }
}

impl fmt::Display for Sizes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.sizes.iter().try_for_each(|figures| size(f, figures))?;
        let further = [
            ("with an exception in every block of the policies", &self.with_exceptions),
            ("with more policies, which select no pod", &self.with_more_policies),
        ];
        for (what, figures) in further {
            if let Some(figures) = figures {
                writeln!(f, "{what}:")?;
                size(f, figures)?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn further_sizes_are_compared_with_each_other_only() {
        let sized = |pods| Figures {
            pods,
            latencies: vec![Latency { rate: 50, ..Latency::default() }],
            ..Figures::default()
        };
        let gates = |sizes: &[usize]| {
            let sizes = sizes.iter().copied().map(sized).collect();
            Sizes { sizes, with_exceptions: None, with_more_policies: None }.gates().len()
        };
        assert_eq!(gates(&[10_000, 50_000, 1_000]), gates(&[10_000]) + 2);
    }
}

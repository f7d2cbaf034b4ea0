//! A short run of chaos for every day; the long one is `integration chaos`.

use anyhow::{Result, ensure};
use integration::{Lab, churn::chaos::Chaos};

#[test]
fn whatever_is_killed_at_whatever_moment_nothing_is_left_that_del_does_not_remove() {
    Lab::of_nodes(1).test(|lab| -> Result<()> {
        let tally = Chaos { seconds: 15, seed: None }.run(lab, &mut |text| println!("{text}"))?;
        // Fewer kills or fewer successes would prove nothing.
        ensure!(
            tally.adds.succeeded >= 10 && tally.adds.killed >= 1 && tally.dels.succeeded >= 10,
            "{tally}"
        );
        ensure!(tally.daemons.values().sum::<u32>() >= 5, "{tally}");
        Ok(())
    });
}

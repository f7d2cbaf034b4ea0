//! Random sequences of verbs and faults on the real daemons, compared step by step with a small
//! reference model of the attached interfaces.
//!
//! | variable | means |
//! |---|---|
//! | `OVN_MODEL_SECONDS` | duration of the test in seconds (12) |
//! | `OVN_MODEL_STEPS` | maximum length of a sequence (25) |
//! | `OVN_MODEL_SEED` | plays only the sequence of this seed |
//!
//! A failing sequence is shrunk for as long as it still fails, and printed with its seed. A seed
//! always makes the same sequence; how far a killed plugin has got differs from run to run, within
//! what the model allows.

mod player;
mod seen;
mod state;
mod step;

use std::{
    env,
    str::FromStr,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use anyhow::{Context as _, Result, anyhow, ensure};
use integration::Lab;
use proptest::{
    strategy::{Strategy, ValueTree},
    test_runner::{Config, RngAlgorithm, TestRng, TestRunner},
};

use player::Player;
use step::{Step, sequences};

/// Limit for shrinking a failing sequence: each try takes seconds, and the result is useful even if
/// it is not the smallest.
const SHRINKING: Duration = Duration::from_secs(60);

#[test]
fn whatever_happens_in_whatever_order_exactly_what_must_be_attached_is() {
    Lab::of_nodes(1).test(|lab| {
        let longest = setting("OVN_MODEL_STEPS")?.unwrap_or(25);
        let seconds = setting("OVN_MODEL_SECONDS")?.unwrap_or(12);
        let only: Option<u64> = setting("OVN_MODEL_SEED")?;
        let first = only.unwrap_or_else(|| {
            SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs() << 20
        });
        let mut player = Player::new(lab)?;
        let end = Instant::now() + Duration::from_secs(seconds);
        let (mut played, mut steps) = (0, 0);
        for seed in first.. {
            steps += play(&mut player, seed, longest)?;
            played += 1;
            if only.is_some() || Instant::now() >= end {
                break;
            }
        }
        println!("{played} sequences with {steps} steps, from seed {first}");
        ensure!(steps > 0, "nothing was played");
        Ok(())
    });
}

/// Plays the sequence of a seed. Returns the number of its steps.
fn play(player: &mut Player<'_>, seed: u64, longest: usize) -> Result<usize> {
    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(&seed.to_le_bytes());
    let mut runner = TestRunner::new_with_rng(
        Config::default(),
        TestRng::from_seed(RngAlgorithm::ChaCha, &bytes),
    );
    let mut tree = sequences(longest)
        .new_tree(&mut runner)
        .map_err(|reason| anyhow!("no sequence: {reason}"))?;
    let steps = tree.current();
    let Err(mut failure) = player.play(&steps) else { return Ok(steps.len()) };

    let first = failure.to_string();
    let mut smallest = steps;
    let end = Instant::now() + SHRINKING;
    let mut smaller = can_go_on(player) && tree.simplify();
    while smaller && Instant::now() < end {
        let steps: Vec<Step> = tree.current();
        let failed = player.play(&steps).err();
        // In a lab that cannot be cleaned up, further tries prove nothing.
        let usable = failed.is_none() || can_go_on(player);
        smaller = match failed {
            Some(why) => {
                (failure, smallest) = (why, steps);
                tree.simplify()
            }
            None => tree.complicate(),
        };
        smaller &= usable;
    }
    let list: String = smallest.iter().map(|step| format!("\n  {step:?}")).collect();
    Err(failure.context(format!(
        "seed {seed} (again with OVN_MODEL_SEED={seed}; at first: {first}); \
         the smallest sequence that fails:{list}"
    )))
}

fn can_go_on(player: &mut Player<'_>) -> bool {
    player
        .recover()
        .inspect_err(|error| {
            eprintln!("the sequence is not shrunk: the lab cannot be restored: {error:#}")
        })
        .is_ok()
}

fn setting<T: FromStr>(name: &str) -> Result<Option<T>>
where
    T::Err: std::error::Error + Send + Sync + 'static,
{
    env::var(name)
        .ok()
        .map(|text| text.parse().with_context(|| format!("{name}={text}")))
        .transpose()
}

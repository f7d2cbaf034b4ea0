use contract::limits::NAMESPACE_FRONT_ENDS;

use super::{super::Service, *};

fn claimant(number: i64) -> Arc<Claimant> {
    let uid = format!("uid-{number}").into();
    Arc::new(Claimant::new(&key(number), &Service { created: number, uid, ..Service::default() }))
}

fn key(number: i64) -> ServiceKey {
    ServiceKey::new("shop", &format!("s{number}")).unwrap()
}

fn cost(front_ends: usize) -> Cost {
    Cost { front_ends, backends: 0 }
}

fn set(quotas: &mut Quotas, number: i64, front_ends: usize) -> Vec<ServiceKey> {
    quotas.set(&key(number), Some((claimant(number), cost(front_ends)))).into_iter().collect()
}

/// Those that are served of 1 to `most`.
fn served(quotas: &Quotas, most: i64) -> Vec<i64> {
    (1..=most).filter(|number| quotas.admits(&key(*number))).collect()
}

static HALF: usize = NAMESPACE_FRONT_ENDS.most / 2;

#[test]
fn the_oldest_services_of_a_namespace_are_served_as_many_as_fit() {
    let mut quotas = Quotas::default();
    assert_eq!(set(&mut quotas, 3, HALF), []);
    assert_eq!(set(&mut quotas, 2, HALF), []);
    assert_eq!(served(&quotas, 3), [1, 2, 3]);
    // The oldest comes last.
    assert_eq!(set(&mut quotas, 1, HALF), [key(3)]);
    assert_eq!(served(&quotas, 3), [1, 2]);
    let exceeded = quotas.exceeded(&key(3)).unwrap();
    assert_eq!((exceeded.limit, exceeded.value), (&NAMESPACE_FRONT_ENDS, 3 * HALF));
    assert_eq!(quotas.exceeded(&key(2)), None);
    // A younger one that would fit does not overtake.
    set(&mut quotas, 4, 1);
    assert_eq!(served(&quotas, 4), [1, 2]);
    assert_eq!(set(&mut quotas, 2, HALF - 1), []);
    assert_eq!(served(&quotas, 4), [1, 2]);
    assert_eq!(set(&mut quotas, 3, 1), [key(3)]);
    assert_eq!(served(&quotas, 4), [1, 2, 3]);
    assert_eq!(quotas.set(&key(2), None), [key(4)].into());
    assert_eq!(served(&quotas, 4), [1, 2, 3, 4]);
    // Another namespace.
    assert!(quotas.admits(&ServiceKey::new("other", "s1").unwrap()));
    for number in [1, 3, 4] {
        quotas.set(&key(number), None);
    }
    assert!(quotas.namespaces.is_empty());
}

/// The order of events does not matter: a node and the controller see different ones.
#[test]
fn which_services_fit_depends_on_the_services_alone() {
    let mut state = 7_u64;
    let mut random = move |below: u64| {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % below
    };
    let mut quotas = Quotas::default();
    let mut costs: BTreeMap<i64, usize> = BTreeMap::new();
    for _ in 0..3_000 {
        let number = i64::try_from(random(9)).unwrap() + 1;
        let before = served(&quotas, 9);
        let passed = if random(4) == 0 {
            costs.remove(&number);
            quotas.set(&key(number), None)
        } else {
            let size = usize::try_from(random(6_000)).unwrap();
            costs.insert(number, size);
            quotas.set(&key(number), Some((claimant(number), cost(size))))
        };
        let mut sum = 0;
        let fits = |(_, cost): &(&i64, &usize)| {
            sum += **cost;
            sum <= NAMESPACE_FRONT_ENDS.most
        };
        let fitting: Vec<i64> = costs.iter().take_while(fits).map(|(number, _)| *number).collect();
        let now: Vec<i64> =
            served(&quotas, 9).into_iter().filter(|number| costs.contains_key(number)).collect();
        assert_eq!(now, fitting, "{costs:?}");
        // Who changes is said, but for the one that was asked about.
        let differ = |number: &i64| before.contains(number) != now.contains(number);
        for number in costs.keys().filter(|other| **other != number).filter(|number| differ(number))
        {
            assert!(passed.contains(&key(*number)), "{number}");
        }
    }
}

//! Which lists are believed.

use super::*;

fn known(names: std::ops::Range<u32>) -> Vec<(u32, Option<Arc<str>>)> {
    names.map(|name| (name, Some(format!("uid-{name}").into()))).collect()
}

fn believes(
    doubt: &mut SafetyBrake<u32>,
    known: Vec<(u32, Option<Arc<str>>)>,
    listed: &[(u32, &str)],
) -> bool {
    let listed: Vec<(u32, Arc<str>)> =
        listed.iter().map(|(name, uid)| (*name, Arc::from(*uid))).collect();
    doubt.believes(known, &listed.iter().map(|(name, uid)| (name, uid)).collect())
}

fn these(names: std::ops::Range<u32>) -> Vec<(u32, String)> {
    names.map(|name| (name, format!("uid-{name}"))).collect()
}

fn listed(names: &[(u32, String)]) -> Vec<(u32, &str)> {
    names.iter().map(|(name, uid)| (*name, uid.as_str())).collect()
}

#[test]
fn what_vanishes_day_by_day_is_believed_and_what_never_does_is_not() {
    let cases = [
        (Rule::Pods, 5, 0, false),
        (Rule::Pods, 2, 0, false),
        (Rule::Pods, 1, 0, true),
        (Rule::Pods, 10, 3, false),
        (Rule::Pods, 10, 5, true),
        (Rule::Pods, 1000, 799, false),
        (Rule::Pods, 1000, 801, true),
        (Rule::Pods, 200, 150, true),
        (Rule::Nodes, 1, 0, false),
        (Rule::Nodes, 2, 0, false),
        (Rule::Nodes, 3, 1, true),
        (Rule::Nodes, 10, 7, false),
        (Rule::Nodes, 10, 8, true),
        (Rule::Nodes, 0, 0, true),
    ];
    for (rule, before, now, believed) in cases {
        assert_eq!(
            believes(&mut SafetyBrake::new(rule), known(0..before), &listed(&these(0..now))),
            believed,
            "{rule:?} {before} {now}"
        );
    }
}

#[test]
fn an_object_of_another_uid_is_another_object() {
    let mut doubt = SafetyBrake::new(Rule::Nodes);
    assert!(!believes(&mut doubt, known(0..2), &[(0, "x"), (1, "y")]));
    assert_eq!(doubt.missing(), 2);
    let mut doubt = SafetyBrake::new(Rule::Nodes);
    assert!(
        believes(&mut doubt, vec![(0, None), (1, None)], &[(0, "x"), (1, "y")]),
        "where no uid is known, names count"
    );
}

#[test]
fn only_what_two_lists_lack_with_time_in_between_is_gone() {
    let mut doubt = SafetyBrake::new(Rule::Pods);
    assert!(!believes(&mut doubt, known(0..10), &[]));
    assert!(
        !believes(&mut doubt, known(0..10), &[]),
        "the API server is asked in vain again at once"
    );
    doubt.time_passed();
    assert!(believes(&mut doubt, known(0..10), &[]));

    // The second list lacks others: it is doubted in turn, with all that it lacks.
    let mut doubt = SafetyBrake::new(Rule::Pods);
    assert!(!believes(&mut doubt, known(0..300), &listed(&these(100..300))));
    assert_eq!(doubt.missing(), 100);
    doubt.time_passed();
    assert!(!believes(&mut doubt, known(0..300), &listed(&these(0..180))));
    assert_eq!(doubt.missing(), 120);
    doubt.time_passed();
    assert!(
        believes(&mut doubt, known(0..300), &listed(&these(0..180))),
        "two lists lack the same"
    );
    assert!(!doubt.is_held());

    // Three more in the second list are no reason.
    let mut doubt = SafetyBrake::new(Rule::Pods);
    assert!(!believes(&mut doubt, known(0..30), &listed(&these(16..30))));
    doubt.time_passed();
    assert!(believes(&mut doubt, known(0..30), &listed(&these(19..30))));
}

/// A wrong API server that is asked first, or that does not tell, must not confirm itself.
#[test]
fn only_the_databases_own_record_confirms_the_cluster() {
    let mut asked = ClusterIdentity::default();
    for _ in 0..2 {
        asked.see(Some("a".into()));
        assert!(!asked.is_confirmed());
    }
    let mut recorded = ClusterIdentity::of("a".into());
    assert!(!recorded.is_confirmed());
    for (id, is_confirmed) in
        [(Some("a"), true), (None, false), (Some("b"), false), (Some("a"), true)]
    {
        recorded.see(id.map(Arc::from));
        assert_eq!(recorded.is_confirmed(), is_confirmed, "{id:?}");
    }
}

//! Against the definition of each selector, on random histories; and the cost of an event.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, LabelSelectorRequirement};
use proptest::prelude::*;

use super::*;

type Object = (Option<&'static str>, BTreeMap<String, String>);

#[derive(Debug, Clone)]
enum Step {
    Put(u8, Object),
    Remove(u8),
    Refer(Selector),
    /// Releases one of the references, by its place among them.
    Release(usize),
}

const KEYS: [&str; 3] = ["app", "tier", "zone"];
const VALUES: [&str; 3] = ["", "a", "b"];

fn namespace() -> impl Strategy<Value = Option<&'static str>> {
    prop::sample::select(vec![None, Some("shop"), Some("bank")])
}

fn object() -> impl Strategy<Value = Object> {
    let labels = prop::collection::btree_map(
        prop::sample::select(KEYS.to_vec()),
        prop::sample::select(VALUES.to_vec()),
        0..4,
    );
    (
        namespace(),
        labels.prop_map(|labels| {
            labels.into_iter().map(|(key, value)| (key.to_owned(), value.to_owned())).collect()
        }),
    )
}

fn requirement() -> impl Strategy<Value = LabelSelectorRequirement> {
    let values = prop::collection::vec(prop::sample::select(VALUES.to_vec()), 1..3);
    let operators = prop::sample::select(vec!["In", "In", "NotIn", "Exists", "DoesNotExist"]);
    (prop::sample::select(KEYS.to_vec()), operators, values).prop_map(|(key, operator, values)| {
        LabelSelectorRequirement {
            key: key.to_owned(),
            operator: operator.to_owned(),
            values: Some(values.into_iter().map(str::to_owned).collect()),
        }
    })
}

fn selector() -> impl Strategy<Value = Selector> {
    (namespace(), prop::collection::vec(requirement(), 0..4)).prop_map(
        |(namespace, requirements)| {
            let selector =
                LabelSelector { match_labels: None, match_expressions: Some(requirements) };
            Selector::new(namespace, &selector).unwrap()
        },
    )
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        5 => (0_u8..6, object()).prop_map(|(number, object)| Step::Put(number, object)),
        1 => (0_u8..6).prop_map(Step::Remove),
        3 => selector().prop_map(Step::Refer),
        2 => any::<usize>().prop_map(Step::Release),
    ]
}

/// The objects and the references, without any index.
#[derive(Debug, Default)]
struct Naive {
    objects: BTreeMap<u8, Object>,
    references: Vec<(SelectorId, Selector)>,
}

impl Naive {
    fn matching(&self, selector: &Selector) -> BTreeSet<u8> {
        let objects = self.objects.iter();
        objects
            .filter(|(_, (namespace, labels))| selector.selects(*namespace, labels))
            .map(|(number, _)| *number)
            .collect()
    }

    fn all(&self) -> BTreeMap<SelectorId, BTreeSet<u8>> {
        self.references.iter().map(|(id, selector)| (*id, self.matching(selector))).collect()
    }
}

fn happen(
    selectors: &mut Selectors<u8>,
    naive: &mut Naive,
    step: Step,
) -> BTreeSet<(SelectorId, Moved)> {
    let mut moves = BTreeSet::new();
    let mut moved = |id, moved| assert!(moves.insert((id, moved)), "it was told twice");
    match step {
        Step::Put(number, (namespace, labels)) => {
            let pairs = labels.iter().map(|(key, value)| (key.as_str(), value.as_str()));
            selectors.put(&number, namespace, pairs, &mut moved);
            naive.objects.insert(number, (namespace, labels));
        }
        Step::Remove(number) => {
            selectors.remove(&number, &mut moved);
            naive.objects.remove(&number);
        }
        Step::Refer(selector) => naive.references.push((selectors.refer_to(&selector), selector)),
        Step::Release(place) => {
            if !naive.references.is_empty() {
                let (id, _) = naive.references.swap_remove(place % naive.references.len());
                selectors.release(id);
            }
        }
    }
    moves
}

proptest! {
    #[test]
    fn the_objects_of_every_selector_are_those_of_its_definition(steps in prop::collection::vec(step(), 0..60)) {
        let (mut selectors, mut naive) = (Selectors::<u8>::default(), Naive::default());
        for step in steps {
            let (is_event, before) = (matches!(step, Step::Put(..) | Step::Remove(_)), naive.all());
            let moves = happen(&mut selectors, &mut naive, step);
            let after = naive.all();
            for (id, selector) in &naive.references {
                let matching = || selectors.matching(*id).copied();
                prop_assert_eq!(matching().collect::<BTreeSet<_>>(), after[id].clone(), "{}", selector);
                prop_assert_eq!(matching().count(), after[id].len());
                for namespace in ["shop", "bank", "mine"] {
                    let is_in = |number: &u8| naive.objects[number].0 == Some(namespace);
                    let within: BTreeSet<u8> = after[id].iter().copied().filter(is_in).collect();
                    prop_assert_eq!(selectors.matching_in(*id, namespace).copied().collect::<BTreeSet<_>>(), within);
                }
                for number in 0..6 {
                    prop_assert_eq!(selectors.matches(*id, &number), after[id].contains(&number));
                }
            }
            for number in 0..6 {
                let matched: Vec<SelectorId> =
                    after.iter().filter(|(_, objects)| objects.contains(&number)).map(|(id, _)| *id).collect();
                prop_assert_eq!(selectors.matched_by(&number), matched);
            }
            // What is told is the difference.
            if is_event {
                let difference = |from: &BTreeMap<SelectorId, BTreeSet<u8>>, to: &BTreeMap<_, BTreeSet<u8>>, moved| {
                    let changed = from.iter().filter(|(id, objects)| !objects.is_subset(&to[*id]));
                    changed.map(|(id, _)| (*id, moved)).collect::<BTreeSet<_>>()
                };
                let told = &difference(&before, &after, Moved::Out) | &difference(&after, &before, Moved::In);
                prop_assert_eq!(moves, told);
            } else {
                prop_assert_eq!(moves, BTreeSet::new());
            }
            for (key, value) in KEYS.iter().flat_map(|key| VALUES.map(|value| (*key, value))) {
                let with: BTreeSet<&u8> = naive.objects.iter()
                    .filter(|(_, (_, labels))| labels.get(key).is_some_and(|own| own == value))
                    .map(|(number, _)| number)
                    .collect();
                prop_assert_eq!(selectors.labels().objects(key, value).collect::<BTreeSet<_>>(), with);
            }
            for namespace in ["shop", "bank"] {
                let within = naive.objects.iter().filter(|(_, (own, _))| *own == Some(namespace));
                let own: BTreeSet<&u8> = selectors.labels().namespace(namespace).collect();
                prop_assert_eq!(own, within.map(|(number, _)| number).collect());
            }
        }
        // Nothing is left of what is gone.
        for number in 0..6 {
            happen(&mut selectors, &mut naive, Step::Remove(number));
        }
        while !naive.references.is_empty() {
            happen(&mut selectors, &mut naive, Step::Release(0));
        }
        prop_assert!(selectors.is_empty(), "{selectors:?}");
    }
}

const POLICIES_OF_A_NAMESPACE: usize = 20;

/// The policies of Red Hat's measurements: each selects the pods of an application and names five
/// peers of its namespace; one in each namespace selects all of its pods.
fn policies(namespaces: usize) -> Selectors<String> {
    let mut selectors = Selectors::default();
    for namespace in (0..namespaces).map(|number| format!("ns{number}")) {
        selectors.refer_to(&Selector::new(Some(&namespace), &LabelSelector::default()).unwrap());
        for policy in 0..POLICIES_OF_A_NAMESPACE {
            for peer in 0..6 {
                let app = format!("app{}", (policy + peer) % POLICIES_OF_A_NAMESPACE);
                // Each pod has the tier, so the other label has to be chosen.
                let labels = BTreeMap::from([
                    ("app".to_owned(), app),
                    ("tier".to_owned(), "web".to_owned()),
                ]);
                let selector =
                    LabelSelector { match_labels: Some(labels), match_expressions: None };
                selectors.refer_to(&Selector::new(Some(&namespace), &selector).unwrap());
            }
        }
    }
    selectors
}

/// Comparisons of a pod that comes, of the same pod seen again, and of one that goes.
fn comparisons(selectors: &mut Selectors<String>) -> [usize; 3] {
    let labels = [("app", "app7"), ("tier", "web"), ("pod-template-hash", "5f6d8c7b9")];
    let mut compared = |event: &mut dyn FnMut(&mut Selectors<String>, &mut usize)| {
        let (before, mut moves) = (selectors.compared.get(), 0);
        event(selectors, &mut moves);
        selectors.compared.get() - before
    };
    let pod = "ns1/pod".to_owned();
    [
        compared(&mut |all, moves| {
            all.put(&pod, Some("ns1"), labels, &mut |_, _| *moves += 1);
            assert_eq!(*moves, 2, "its application, and all of its namespace");
        }),
        compared(&mut |all, moves| {
            all.put(&pod, Some("ns1"), labels, &mut |_, _| *moves += 1);
            assert_eq!(*moves, 0);
        }),
        compared(&mut |all, moves| {
            all.remove(&pod, &mut |_, _| *moves += 1);
            assert_eq!(*moves, 2);
        }),
    ]
}

#[test]
fn a_pod_is_compared_with_the_selectors_of_its_labels_however_many_there_are() {
    assert_eq!(comparisons(&mut policies(5)), [2, 0, 0]);
    assert_eq!(comparisons(&mut policies(240)), [2, 0, 0]);
}

/// A key of a custom resource's selector was the label of the same text: an object with that label
/// had it without its key, and matched no selector that asked for the key.
#[test]
fn a_key_is_not_the_label_that_has_its_text() {
    let mut labels = Labels::<u8>::default();
    let key = labels.refer_to("role=db", None);
    labels.put(&1, None, [("role", "db")]);
    let number = labels.number(&1).unwrap();
    let [label] = labels.of(number) else { panic!("one label") };
    assert!(*label != key && labels.key(*label).is_some());
    assert_eq!(labels.objects("role", "db").collect::<Vec<_>>(), [&1]);
}

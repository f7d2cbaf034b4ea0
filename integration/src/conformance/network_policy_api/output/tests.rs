use super::*;

const TRIED: &str = r"
    helper.go:113: FAILED Command was [/agnhost connect --timeout=3s --protocol=PROTOCOL 10.244.0.9:9003]
    helper.go:114: Expected connection to succeed from a/b-0 to 10.244.0.9, but instead it miserably failed. stderr: WHY
    helper.go:140: 
        	Error Trace:	/x/conformance/utils/kubernetes/helper.go:140
        	Error:      	Condition never satisfied
        	Test:       	TestConformance/One/Should_connect
";

fn read(sctp: Sctp, text: &str) -> Output {
    let mut output = Output::new(sctp);
    for line in text.lines() {
        output.line(line);
    }
    output
}

/// A run of one test with one part, which prints `printed` and fails.
fn failing(printed: &str) -> String {
    format!(
        "=== RUN   TestConformance\n=== RUN   TestConformance/One\n=== RUN   TestConformance/One/Should_connect\n{printed}\n\
         --- FAIL: TestConformance (3.00s)\n    --- FAIL: TestConformance/One (2.00s)\n        --- FAIL: TestConformance/One/Should_connect (1.00s)\nFAIL\n"
    )
}

fn outcomes(output: Output, succeeded: bool) -> Vec<(String, Outcome)> {
    output.specs("s", succeeded).into_iter().map(|spec| (spec.name, spec.outcome)).collect()
}

#[test]
fn a_part_of_a_test_is_a_spec_and_a_test_without_parts_is_one() {
    let text = "=== RUN   TestConformance\n    conformance_test.go:5: Running\n=== RUN   TestConformance/One\n\
        === RUN   TestConformance/One/Should_deny,_first\n    helper.go:9: something\n=== RUN   TestConformance/Two\n    suite.go:7: Skipping Two: suite does not support X\n\
        --- PASS: TestConformance (9.50s)\n    --- PASS: TestConformance/One (4.00s)\n        --- PASS: TestConformance/One/Should_deny,_first (1.50s)\n    --- SKIP: TestConformance/Two (0.00s)\nPASS\n";
    let specs = read(Sctp::Present, text).specs("s", true);
    let seen: Vec<(&str, &Outcome)> =
        specs.iter().map(|spec| (spec.name.as_str(), &spec.outcome)).collect();
    let skipped = Outcome::Skipped("Skipping Two: suite does not support X".to_owned());
    assert_eq!(
        seen,
        [
            ("[network-policy-api] One Should deny, first", &Outcome::Passed),
            ("[network-policy-api] Two", &skipped)
        ]
    );
    assert_eq!(specs[0].time, Duration::from_millis(1500));
    assert_eq!(read(Sctp::Present, text).skipped(), ["Two"]);
}

#[test]
fn a_connection_that_should_not_have_failed_is_a_failure_with_its_command() {
    let text = failing(&TRIED.replace("PROTOCOL", "tcp").replace("WHY", "TIMEOUT"));
    for sctp in [Sctp::Present, Sctp::Absent] {
        let why = "Expected connection to succeed from a/b-0 to 10.244.0.9, but instead it miserably failed. stderr: TIMEOUT \
            FAILED Command was [/agnhost connect --timeout=3s --protocol=tcp 10.244.0.9:9003]";
        let expected =
            ("[network-policy-api] One Should connect".to_owned(), Outcome::Failed(why.to_owned()));
        assert_eq!(outcomes(read(sctp, &text), false), [expected]);
    }
}

/// A machine without SCTP must not hide what fails for another reason.
#[test]
fn only_a_test_that_lacks_nothing_but_sctp_is_skipped_for_it() {
    let no_sctp = TRIED.replace("PROTOCOL", "sctp").replace("WHY", "OTHER: protocol not supported");
    let outcome = |sctp, printed: &str| outcomes(read(sctp, &failing(printed)), false).remove(0).1;
    assert!(matches!(outcome(Sctp::Absent, &no_sctp), Outcome::Skipped(_)));
    assert!(matches!(outcome(Sctp::Present, &no_sctp), Outcome::Failed(_)));
    // A connection that was as expected at the second attempt is no failure.
    let before_the_policy = "    helper.go:114: Expected connection to fail from a/b-0, but instead it successfully connected.";
    assert!(matches!(
        outcome(Sctp::Absent, &format!("{before_the_policy}{no_sctp}")),
        Outcome::Skipped(_)
    ));
    let others = [
        TRIED.replace("PROTOCOL", "tcp").replace("WHY", "REFUSED"),
        "        \tError:      \tReceived unexpected error:\n        \tMessages:   \tunable to patch policy"
            .to_owned(),
        "    helper.go:80: FAILED to execute command [/agnhost connect] on pod a/b-0: EOF\n        \tError:      \tShould be true".to_owned(),
    ];
    for other in others {
        let Outcome::Failed(why) = outcome(Sctp::Absent, &format!("{no_sctp}{other}")) else {
            panic!("it is skipped in spite of {other}")
        };
        assert!(!why.contains("protocol not supported"), "{why}");
    }
}

#[test]
fn what_fails_before_the_tests_fails_the_run() {
    let text = "=== RUN   TestConformance\n    apply.go:9: \n        \tError:      \tReceived unexpected error:\n\
        \x20       \tMessages:   \terror creating resource\n--- FAIL: TestConformance (1.00s)\nFAIL\n";
    let expected = (
        "[network-policy-api] the suite s as a whole".to_owned(),
        Outcome::Failed("error creating resource".to_owned()),
    );
    assert_eq!(outcomes(read(Sctp::Present, text), false), [expected]);
}

/// Among them a test whose part was skipped for want of SCTP, and which could not delete its
/// policy.
#[test]
fn a_test_that_fails_on_its_own_is_a_spec_beside_its_parts() {
    let no_sctp = TRIED.replace("PROTOCOL", "sctp").replace("WHY", "OTHER: protocol not supported");
    let own = "=== NAME  TestConformance/One\n        \tError:      \tReceived unexpected error:\n        \tMessages:   \terror deleting resource";
    let seen = outcomes(read(Sctp::Absent, &failing(&format!("{no_sctp}{own}"))), false);
    assert_eq!(
        seen[0],
        (
            "[network-policy-api] One".to_owned(),
            Outcome::Failed("error deleting resource".to_owned())
        )
    );
    assert!(matches!(seen[1].1, Outcome::Skipped(_)), "{seen:?}");
    assert_eq!(seen.len(), 2);
}

#[test]
fn a_suite_that_ends_without_its_result_fails_the_run() {
    let text = "=== RUN   TestConformance\n=== RUN   TestConformance/One\n    --- PASS: TestConformance/One (1.00s)\npanic: test timed out after 1h0m0s\n";
    let seen = outcomes(read(Sctp::Present, text), false);
    let why = "it ended early: panic: test timed out after 1h0m0s".to_owned();
    let name = "[network-policy-api] the suite s as a whole".to_owned();
    assert_eq!(seen.last(), Some(&(name.clone(), Outcome::Failed(why))));
    // And one that says that all is well, but does not end so.
    let text =
        "=== RUN   TestConformance\n--- PASS: TestConformance (1.00s)\nPASS\nexit status 2\n";
    assert_eq!(
        outcomes(read(Sctp::Present, text), false).last().map(|(name, _)| name),
        Some(&name)
    );
}

//! The variables of a call: DEL accepts everything that ADD accepts, `CNI_ARGS` never prevents a
//! DEL, and parsed values can be written and parsed again.

use cni::invocation::{Call, Environment, Subject};
use contract::cni_args::PodArgs;

use crate::LONGEST_ERROR;

/// `data` is the environment: lines of `NAME=VALUE`.
pub fn check(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let variables: Vec<(String, String)> = text
        .lines()
        .filter_map(|line| line.split_once('='))
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect();
    let environment: Environment = variables.iter().cloned().collect();
    let with = |name: &str, value: Option<&str>| {
        let others = variables.iter().filter(|(other, _)| other != name).cloned();
        let call = others
            .chain(value.map(|value| (name.to_owned(), value.to_owned())))
            .collect::<Environment>();
        Call::parse(&call)
    };

    match Call::parse(&environment) {
        Err(error) => {
            assert!(
                error.to_string().len() <= LONGEST_ERROR,
                "an error of {} bytes",
                error.to_string().len()
            )
        }
        Ok(Call::Add(subject) | Call::Check(subject)) => {
            assert!(subject.netns.is_some(), "only DEL may come without a namespace");
            check_subject(&subject);
            match with("CNI_COMMAND", Some("DEL")) {
                Ok(Call::Del(other)) => assert_eq!(other, subject, "DEL means what ADD meant"),
                other => panic!("ADD is accepted, DEL is not: {other:?}"),
            }
        }
        Ok(Call::Del(subject)) => check_subject(&subject),
        Ok(Call::About | Call::Version | Call::Gc | Call::Status) => {}
    }
    let del = |args| {
        let others = variables
            .iter()
            .filter(|(name, _)| name != "CNI_ARGS" && name != "CNI_COMMAND")
            .cloned();
        let args =
            Option::into_iter(args).map(|args: &str| ("CNI_ARGS".to_owned(), args.to_owned()));
        let call: Environment =
            others.chain([("CNI_COMMAND".to_owned(), "DEL".to_owned())]).chain(args).collect();
        Call::parse(&call).is_ok()
    };
    assert_eq!(del(environment.value("CNI_ARGS")), del(None), "CNI_ARGS decides whether DEL works");
    if let Some(args) = environment.value("CNI_ARGS") {
        check_args(args);
    }
}

fn check_subject(Subject { sandbox, if_name, netns: _, pod: _ }: &Subject) {
    assert_eq!(sandbox.as_str().parse().as_ref(), Ok(sandbox));
    assert_eq!(if_name.as_str().parse().as_ref(), Ok(if_name));
}

fn check_args(text: &str) {
    match PodArgs::parse(text) {
        Err(error) => {
            assert!(
                error.to_string().len() <= LONGEST_ERROR,
                "an error of {} bytes",
                error.to_string().len()
            )
        }
        Ok(args) => {
            let PodArgs { pod, uid, infra_container_id } = &args;
            let written = format!(
                "IgnoreUnknown=1;K8S_POD_NAMESPACE={};K8S_POD_NAME={};\
                 K8S_POD_INFRA_CONTAINER_ID={};K8S_POD_UID={}",
                pod.namespace(),
                pod.name(),
                infra_container_id.as_deref().unwrap_or_default(),
                uid.as_deref().unwrap_or_default(),
            );
            assert_eq!(PodArgs::parse(&written).as_ref(), Ok(&args), "{written}");
        }
    }
}

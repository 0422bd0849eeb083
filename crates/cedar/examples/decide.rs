//! Measures the time of a decision, for `cargo xtask bench policy`: prints each measured time,
//! nanoseconds, as JSON.

use std::fmt::Write as _;
use std::path::Path;
use std::time::Instant;

use atoll_cedar::{
    Asked, Effect, Facts, Follows, Known, Layer, Layers, PolicyFile, Principal, Question,
};
use atoll_model::Mode;
use atoll_model::network::{HostPart, Request, Scheme, Target};

/// The number of times that each question is asked.
const TIMES: usize = 5_000;

/// Returns policies as people write them: hosts and paths in their scopes, some for groups, one in
/// twenty about everything.
fn policies(count: usize) -> String {
    let mut text = String::new();
    for at in 0..count {
        let _ = match at % 20 {
            0 => writeln!(
                text,
                "@id(\"p{at}\") forbid(principal, action, resource) when {{ context.time < {at} }};"
            ),
            1..=8 => writeln!(
                text,
                "@id(\"p{at}\") permit(principal, action == Action::\"request\", resource == Host::\"h{at}.example.com\") when {{ context.port == 443 && [\"GET\", \"POST\"].contains(context.method) && context.path like \"/v1/*\" }};"
            ),
            9..=12 => writeln!(
                text,
                "@id(\"p{at}\") permit(principal, action in [Action::\"resolve\", Action::\"connect\"], resource in Host::\"*.h{at}.example.com\");"
            ),
            13..=16 => writeln!(
                text,
                "@id(\"p{at}\") forbid(principal, action == Action::\"read\", resource in Path::\"/home/x{at}\");"
            ),
            _ => writeln!(
                text,
                "@id(\"p{at}\") permit(principal in Group::\"team{at}\", action == Action::\"read\", resource in Path::\"/srv/p{at}\");"
            ),
        };
    }
    text
}

/// Returns people in teams, and teams in departments.
fn known(count: usize) -> Result<Known, String> {
    let mut known = Known::default();
    for at in 0..count {
        let team = at % 500;
        known.add(
            &format!("Person::\"{at}\""),
            &format!("Group::\"team{team}\""),
        )?;
        if at < 500 {
            known.add(
                &format!("Group::\"team{team}\""),
                &format!("Group::\"department{}\"", team % 20),
            )?;
        }
    }
    Ok(known)
}

fn layers(
    policies_count: usize,
    entities: usize,
    tree: &[Layer],
) -> Result<(Layers, u128), String> {
    let known = known(entities)?;
    let file = PolicyFile {
        name: "/policies/bench.cedar".to_owned(),
        content: policies(policies_count).into_bytes(),
    };
    let files: Vec<_> = tree
        .iter()
        .map(|layer| (*layer, vec![file.clone()]))
        .collect();
    let began = Instant::now();
    let layers = Layers::compile(&files, &known).map_err(|faults| format!("{faults:?}"))?;
    Ok((layers, began.elapsed().as_nanos()))
}

/// Asks about requests and paths, some of which are allowed, and returns the times.
fn measure(layers: &Layers, policies: usize) -> Result<Vec<u128>, String> {
    let facts = Facts::new(1_800_000_000, Mode::Full, "default");
    let target = Target::parse("/v1/items").map_err(|error| error.to_string())?;
    let mut times = Vec::with_capacity(TIMES);
    let (mut allowed, mut denied) = (0, 0);
    for at in 0..TIMES {
        let person = u32::try_from(at % 100).unwrap_or_default();
        let principal = Principal {
            person,
            session: Some("run".to_owned()),
        };
        let about = at % policies;
        let host: HostPart = format!("h{about}.example.com")
            .parse()
            .map_err(|_| "no host")?;
        let place = format!("/srv/p{about}/src/a/b/c.rs");
        let request = Request {
            host: &host,
            port: 443,
            scheme: Scheme::Https,
            method: "GET",
            target: &target,
        };
        let asked = match about % 20 {
            0..=12 => Asked::Request(&request, Follows::Nothing),
            _ => Asked::Read(Path::new(&place)),
        };
        let began = Instant::now();
        let decision = layers.authorize(&Question {
            principal: &principal,
            asked,
            facts: &facts,
        });
        times.push(began.elapsed().as_nanos());
        match decision.effect {
            Effect::Allow => allowed += 1,
            Effect::Ask | Effect::Deny => denied += 1,
        }
    }
    // Nothing is measured where every answer is the same.
    if allowed == 0 || denied == 0 {
        return Err(format!("{allowed} allowed, {denied} denied"));
    }
    Ok(times)
}

fn main() -> Result<(), String> {
    let one = [Layer::User];
    let three = [Layer::Organisation, Layer::User, Layer::Project];
    let cases: [(&str, usize, usize, &[Layer]); 3] = [
        ("100 policies", 100, 0, &one),
        ("100 policies in each of 3 layers", 100, 0, &three),
        ("2,000 policies, 10,000 entities", 2_000, 10_000, &one),
    ];
    let mut results = Vec::new();
    for (name, policies, entities, tree) in cases {
        let (layers, compile) = layers(policies, entities, tree)?;
        let times = measure(&layers, policies)?;
        let raw: Vec<String> = times.iter().map(ToString::to_string).collect();
        results.push(format!(
            "{{\"name\":\"{name}\",\"compile_ns\":{compile},\"decide_ns\":[{}]}}",
            raw.join(",")
        ));
        let mut sorted = times;
        sorted.sort_unstable();
        let at = |part: usize| {
            sorted
                .get(sorted.len() * part / 100)
                .copied()
                .unwrap_or_default()
        };
        let us = |ns: u128| format!("{}.{} µs", ns / 1000, ns % 1000 / 100);
        eprintln!(
            "{name}: median {}, p99 {}, compiled in {} µs",
            us(at(50)),
            us(at(99)),
            compile / 1000
        );
    }
    println!("[{}]", results.join(","));
    Ok(())
}

//! `plimsoll sim`: the stand-in vLLM in real time, for other people's tools and tests.

use std::io::Write;

use anyhow::Context;

use crate::cli::SimArgs;
use crate::error::{Exit, Refusal};
use crate::gpu::{GpuSpec, Source};
use crate::model::near::did_you_mean;
use crate::model::time::{Clock, ClockKind};
use crate::scenario::{Scenario, SimSpec, in_words, key_meant};
use crate::sim::profile::Fault;
use crate::sim::{self, Profile};

/// Serves a profile until Ctrl-C.
pub fn simulate(args: &SimArgs) -> anyhow::Result<Exit> {
    if args.profile == "list" {
        let lines: Vec<String> = Profile::names()
            .into_iter()
            .map(|name| format!("{name:<16} {}\n", Profile::summary(name).unwrap_or_default()))
            .collect();
        return super::answer(|out| Ok(out.write_all(lines.concat().as_bytes())?));
    }
    let profile = asked_for(args)?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().context("starting the runtime")?;
    runtime.block_on(async {
        let listener = sim::bind(args.listen).map_err(|error| {
            Refusal::usage(format!("cannot listen on {}: {error}", args.listen), "choose another address with --listen")
        })?;
        let address = listener.local_addr().context("reading our own address")?;
        let _ = writeln!(
            std::io::stderr(),
            "serving profile {} as model {} on http://{address} (Ctrl-C ends it)",
            args.profile,
            profile.api.model
        );
        let stop = async {
            let _ = tokio::signal::ctrl_c().await;
        };
        sim::serve_on(Clock::start(ClockKind::Real), listener, profile, args.seed, stop)
            .await
            .context("serving the stand-in")?;
        Ok(Exit::Done)
    })
}

/// The profile that the flags describe.
fn asked_for(args: &SimArgs) -> Result<Profile, Refusal> {
    let mut with = toml::Table::new();
    for text in &args.set {
        let change: toml::Table = text.parse().map_err(|e: toml::de::Error| {
            Refusal::usage(
                format!("--set {text}: {}", e.message()),
                "expected SETTING=VALUE, as in engine.max_num_seqs=3",
            )
        })?;
        lay_over(&mut with, &change);
    }
    let mut profile = profile(&SimSpec { profile: args.profile.clone(), seed: None, with })?;
    for text in &args.fault {
        let fault: Result<One, toml::de::Error> = toml::from_str(&format!("fault = {{ {text} }}"));
        let fault = fault.map_err(|e| {
            Refusal::usage(format!("--fault {text}: {}", e.message()), "as in kind=\"freeze\", at=\"10s\", for=\"20s\"")
        })?;
        profile.faults.push(fault.fault);
    }
    Ok(profile)
}

#[derive(serde::Deserialize)]
struct One {
    fault: Fault,
}

/// Where the GPU of a run is read: the stand-in's own page where one is under test, else as the scenario says.
/// `scenario.target.url` is the stand-in's real address by then.
pub fn gpu(scenario: &Scenario) -> GpuSpec {
    match (&scenario.sim, &scenario.gpu.source) {
        (Some(_), Source::Auto) => {
            let source = Source::Dcgm(format!("{}/dcgm/metrics", scenario.target.url));
            // Its readings are as fresh as they are asked for, at any scale of time.
            GpuSpec { source, ..scenario.gpu.scaled(scenario.time_scale) }
        }
        _ => scenario.gpu.clone(),
    }
}

/// Serves the stand-in that a scenario asks for, if it does, on a port of the system's choice, and aims the
/// scenario at it. It ends with the runtime.
///
/// # Errors
/// If there is no such profile, or nothing can be listened on.
pub fn serve(scenario: &mut Scenario, clock: Clock) -> anyhow::Result<()> {
    let Some(spec) = &scenario.sim else { return Ok(()) };
    let profile = profile(spec)?;
    let listener = sim::bind(([127, 0, 0, 1], 0).into()).context("listening for the stand-in")?;
    let address = listener.local_addr().context("reading the stand-in's address")?;
    scenario.target.url = format!("http://{address}");
    let seed = spec.seed.unwrap_or(scenario.seed);
    tokio::spawn(sim::serve_on(clock, listener, profile, seed, std::future::pending()));
    Ok(())
}

/// A named profile with the scenario's changes laid over it.
///
/// # Errors
/// If there is no such profile, or a change does not fit it.
pub fn profile(spec: &SimSpec) -> Result<Profile, Refusal> {
    let named = Profile::named(&spec.profile).ok_or_else(|| {
        let names = Profile::names();
        let known = names.join(", ");
        Refusal::usage(
            format!("no stand-in profile is called `{}`, expected one of {known}", spec.profile),
            did_you_mean(&spec.profile, names),
        )
    })?;
    let bad = |says: String| Refusal::usage(format!("[sim.with]: {says}"), "");
    let mut table = toml::Table::try_from(&named).map_err(|e| bad(e.to_string()))?;
    lay_over(&mut table, &spec.with);
    let profile: Profile = table.try_into().map_err(|e: toml::de::Error| {
        Refusal::usage(format!("[sim.with]: {}", in_words(e.message().trim())), key_meant(e.message()))
    })?;
    profile.validate().map_err(bad)?;
    Ok(profile)
}

fn lay_over(below: &mut toml::Table, above: &toml::Table) {
    for (key, value) in above {
        match (below.get_mut(key), value) {
            (Some(toml::Value::Table(b)), toml::Value::Table(a)) => lay_over(b, a),
            _ => {
                below.insert(key.clone(), value.clone());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_reach_the_profile_and_typos_are_refused() {
        let with = |text: &str| SimSpec { profile: "quickstart".into(), seed: None, with: text.parse().unwrap() };
        let changed = profile(&with("[engine]\nmax_num_seqs = 3")).unwrap();
        assert_eq!(changed.engine.max_num_seqs, 3);
        assert_eq!(changed.cost, Profile::named("quickstart").unwrap().cost);
        let typo = profile(&with("[engine]\nmax_num_seq = 3")).unwrap_err();
        assert!(typo.says.contains("`max_num_seq`"), "{typo}");
        assert_eq!(typo.hint, "did you mean `max_num_seqs`?");
        assert!(profile(&with("[engine]\nmax_num_seqs = 0")).is_err());
        let typo = profile(&SimSpec { profile: "quikstart".into(), seed: None, with: toml::Table::new() }).unwrap_err();
        assert_eq!(typo.hint, "did you mean `quickstart`?");
    }

    #[test]
    fn flags_change_settings_and_add_faults() {
        let args = |set: &[&str], fault: &[&str]| SimArgs {
            profile: "quickstart".into(),
            listen: ([127, 0, 0, 1], 0).into(),
            seed: 1,
            set: set.iter().map(|s| (*s).to_owned()).collect(),
            fault: fault.iter().map(|s| (*s).to_owned()).collect(),
        };
        let set = ["engine.max_num_seqs=3", "engine.policy=\"priority\"", "api.stream_interval=4"];
        let changed =
            asked_for(&args(&set, &["kind=\"freeze\", at=\"10s\", for=\"20s\"", "kind={slow={factor=3.0}}"])).unwrap();
        assert_eq!((changed.engine.max_num_seqs, changed.api.stream_interval), (3, 4));
        assert_eq!(changed.faults.len(), 2);
        assert_eq!(changed.faults[0].at, std::time::Duration::from_secs(10));
        for (set, fault, named) in [
            (vec!["engine.max_num_seqs"], vec![], "--set engine.max_num_seqs"),
            (vec!["engine.max_seqs=3"], vec![], "max_seqs"),
            (vec![], vec!["kind=\"explode\""], "explode"),
            (vec![], vec!["kind=\"freeze\", till=\"3s\""], "till"),
        ] {
            let says = asked_for(&args(&set, &fault)).unwrap_err().says;
            assert!(says.contains(named), "{says}");
        }
    }
}

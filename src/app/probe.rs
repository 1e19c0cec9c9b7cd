//! What is asked of the target before any load, and what is said when it cannot be used.

use std::time::Duration;

use anyhow::Context;
use tokio::sync::watch;

use crate::error::{Exit, Refusal};
use crate::gpu::GpuError;
use crate::load::{self, ProbeError, Target};
use crate::model::time::Clock;
use crate::record::{self, is_secret_name};
use crate::rules::RuleSet;
use crate::scenario::{Param, Scenario, ServerSpec};
use crate::scrape::{self, Page};
use crate::workload::Workload;

use super::launch::{self, Server};
use super::prepare::Prepared;

/// The name under which a key from the command line is handed on; no variable can be called so.
const FLAG: &str = "--api-key";
/// Pause between two looks at a server that starts.
const PAUSE: Duration = Duration::from_secs(1);

/// Everything that must never be written: keys, and headers that may hold one.
pub fn secrets(scenario: &Scenario, api_key: Option<&str>) -> Vec<String> {
    let target = &scenario.target;
    let variables = target.api_key_env.iter().map(String::as_str).chain(["OPENAI_API_KEY"]);
    let mut out: Vec<String> = variables.filter_map(|name| std::env::var(name).ok()).collect();
    out.extend(api_key.map(str::to_owned));
    // Also without `Bearer ` before it: servers and proxies repeat the key alone.
    for value in target.headers.values() {
        out.push(value.clone());
        out.extend(value.split_whitespace().skip(1).map(str::to_owned));
    }
    let server = scenario.server.as_ref();
    let named = server.iter().flat_map(|s| &s.env).filter(|(name, _)| is_secret_name(name));
    out.extend(named.map(|(_, value)| value.clone()));
    for words in server.iter().map(|s| s.command.iter().collect::<Vec<_>>()).chain(server.iter().flat_map(|s| lists(s)))
    {
        out.extend(words.windows(2).filter(|w| is_secret_name(w[0]) && w[0].starts_with('-')).map(|w| w[1].clone()));
    }
    let params = server.iter().flat_map(|s| &s.params).filter(|(name, _)| is_secret_name(name));
    out.extend(params.filter_map(|(_, p)| if let Param::One(value) = p { Some(value.clone()) } else { None }));
    for (name, value) in &target.extra_body {
        if is_secret_name(name) {
            out.extend(value.as_str().map(str::to_owned));
        }
    }
    let proxies = ["http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"];
    let addresses = proxies.iter().filter_map(|name| std::env::var(name).ok());
    let given = [Some(target.url.clone()), target.metrics_url.clone(), Some(scenario.gpu.source.to_string())];
    for address in addresses.chain(given.into_iter().flatten()) {
        out.extend(record::in_address(&address));
    }
    out
}

/// The parameters of a server's command that are several words.
fn lists(server: &ServerSpec) -> Vec<Vec<&String>> {
    server
        .params
        .values()
        .filter_map(|p| if let Param::Many(words) = p { Some(words.iter().collect()) } else { None })
        .collect()
}

/// Probes the server that `scenario` names.
///
/// # Errors
/// One line that says what to do, with the exit code that fits.
pub async fn target(prepared: &Prepared, scenario: &Scenario, clock: &Clock) -> Result<Target, Refusal> {
    probe(prepared, scenario, clock).await.map_err(|error| {
        let mut refusal = refuse(&error);
        if scenario.server.is_some() && matches!(error, ProbeError::Unreachable { proxy: None, .. }) {
            refusal.hint =
                "start the server, or let plimsoll start it with --launch, as the scenario's [server] says".into();
        }
        refusal
    })
}

async fn probe(prepared: &Prepared, scenario: &Scenario, clock: &Clock) -> Result<Target, ProbeError> {
    let mut spec = scenario.target.clone();
    if prepared.api_key.is_some() {
        spec.api_key_env = Some(FLAG.into());
    }
    let given = prepared.api_key.clone();
    let key = |name: &str| if name == FLAG { given.clone() } else { std::env::var(name).ok() };
    load::probe_with(&spec, clock, key).await
}

/// Waits until a server that we started answers a real completion.
///
/// # Errors
/// If it dies, or does not answer within `limit`.
pub async fn until_ready(
    prepared: &Prepared,
    scenario: &Scenario,
    server: &mut Server,
    clock: &Clock,
    limit: Duration,
    interrupt: &watch::Receiver<u32>,
) -> anyhow::Result<Target> {
    let until = clock.now() + limit;
    loop {
        if let Some(status) = server.ended() {
            let says = format!("the server died before it answered: {}", launch::say(status));
            return Err(Refusal::target(says, server.last_words()).into());
        }
        if *interrupt.borrow() > 0 {
            let says = "interrupted while the server was starting".into();
            return Err(Refusal { exit: Exit::Interrupted, says, hint: String::new() }.into());
        }
        let error = match probe(prepared, scenario, clock).await {
            Ok(target) => return Ok(target),
            Err(error) => error,
        };
        // While it starts nobody listens, or it answers 503; anything else will not pass by itself.
        let starting = matches!(
            error,
            ProbeError::Unreachable { .. } | ProbeError::Refused { status: 503, .. } | ProbeError::WrongUrl { .. }
        );
        if !starting || clock.now() >= until {
            let mut refusal = refuse(&error);
            if starting {
                refusal.says = format!("the server did not answer within {} s: {}", limit.as_secs(), refusal.says);
                refusal.hint = format!("raise ready_timeout, or look into {}", server.log().display());
            }
            return Err(refusal.into());
        }
        clock.sleep_until(clock.now() + PAUSE).await;
    }
}

/// Reads the metrics page once, if rules need it.
///
/// # Errors
/// If the page cannot be read, or is not in Prometheus' format.
pub async fn metrics(target: &Target, scenario: &Scenario, rules: &RuleSet) -> anyhow::Result<()> {
    let Some(url) = target.facts.metrics_url.as_ref().filter(|_| rules.alerts().next().is_some()) else {
        return Ok(());
    };
    let page = scrape::poller::once(&Page::server(url), &scenario.metrics)
        .await
        .map_err(|e| Refusal::usage(e.to_string(), ""))?;
    page.map(drop).map_err(|failure| {
        Refusal::target(
            format!("the metrics page {} cannot be used: {}", bare(url), failure.detail),
            "give its address with --metrics-url, or `--metrics-url off` to judge by the client's own alerts alone",
        )
        .into()
    })
}

/// An address without what may be secret in it.
fn bare(url: &str) -> String {
    reqwest::Url::parse(url).map_or_else(
        |_| "given".into(),
        |u| {
            let port = u.port().map_or_else(String::new, |p| format!(":{p}"));
            format!("{}://{}{port}{}", u.scheme(), u.host_str().unwrap_or_default(), u.path())
        },
    )
}

/// Whether the longest request fits into the model.
///
/// # Errors
/// If it does not.
pub fn fits(workload: &Workload, target: &Target) -> Result<(), Refusal> {
    target.fits(workload).map_err(|e| refuse(&e))
}

/// Why the GPU cannot be read, where the scenario demands it.
pub fn gpu(error: GpuError) -> anyhow::Error {
    let hint = error.hint();
    Refusal::usage(error.to_string(), hint).into()
}

/// The exit code and words that a failed probe stands for.
pub fn refuse(error: &ProbeError) -> Refusal {
    let exit = if error.is_usage() { Exit::Usage } else { Exit::Target };
    Refusal { exit, says: error.to_string(), hint: error.hint() }
}

/// A workload for this server.
///
/// # Errors
/// If its lengths cannot be had.
pub fn workload(scenario: &Scenario, nonce: &str, target: &Target) -> anyhow::Result<Workload> {
    Workload::new(&scenario.workload, scenario.seed, nonce, target.calibration.clone())
        .map_err(|e| Refusal::usage(e.to_string(), e.hint().unwrap_or_default()))
        .context("making the prompts")
}

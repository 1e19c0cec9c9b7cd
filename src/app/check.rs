//! `plimsoll check`: everything but the load. One request is sent.

use std::io::Write;
use std::time::Duration;

use anyhow::Context;

use crate::cli::RunArgs;
use crate::error::Exit;
use crate::gpu;
use crate::ladder::Loop;
use crate::load::Target;
use crate::model::time::Clock;
use crate::model::units::prometheus_duration;
use crate::sim;

use super::prepare::Prepared;
use super::{probe, run, simulate};

/// Probes target, metrics and GPU, and prints the plan.
pub fn check(args: &RunArgs) -> anyhow::Result<Exit> {
    let prepared = Prepared::new(args)?;
    let runtime = run::runtime(prepared.clock())?;
    let seen = runtime.block_on(look(&prepared))?;
    super::answer(|out| {
        describe(out, &seen.target)?;
        match &seen.panel {
            Ok(Some(panel)) => write!(out, "{panel}")?,
            Ok(None) => writeln!(out, "gpu       not read: it is switched off")?,
            // The usual case: the client stands beside a server without being on its machine.
            Err(error) => writeln!(
                out,
                "gpu       not read: {error}\n          --gpu dcgm=URL reads the exporter of the server's machine, smi=FILE its log"
            )?,
        }
        Ok(plan(out, &prepared)?)
    })
}

/// What was found.
struct Seen {
    target: Target,
    /// The GPU; none if it is switched off, or why it cannot be read.
    panel: Result<Option<gpu::Panel>, gpu::GpuError>,
}

async fn look(prepared: &Prepared) -> anyhow::Result<Seen> {
    let clock = Clock::start(prepared.clock());
    let mut scenario = prepared.scenario.clone();
    if let Some(profile) = &scenario.sim {
        let listener = sim::bind(([127, 0, 0, 1], 0).into()).context("listening for the stand-in")?;
        scenario.target.url = format!("http://{}", listener.local_addr().context("reading its address")?);
        let profile = simulate::profile(profile)?;
        tokio::spawn(sim::serve_on(clock, listener, profile, scenario.seed, std::future::pending()));
    }
    let target = probe::target(prepared, &scenario, &clock).await?;
    probe::metrics(&target, &scenario, &prepared.rules).await?;
    probe::fits(&probe::workload(&scenario, "check", &target)?, &target)?;
    let panel = match gpu::check(&simulate::gpu(&scenario), clock).await {
        // What the run itself would say: it goes on, and why there is no GPU is one line.
        Err(error @ gpu::GpuError::Unavailable { .. }) if !scenario.gpu.required => Err(error),
        panel => Ok(panel.map_err(probe::gpu)?),
    };
    Ok(Seen { target, panel })
}

fn describe(out: &mut dyn Write, target: &Target) -> std::io::Result<()> {
    let facts = &target.facts;
    let yes = |b: bool| if b { "yes" } else { "no" };
    writeln!(out, "target    {}  model {}", facts.url, facts.model)?;
    if !facts.addresses.is_empty() {
        writeln!(out, "          its name stands for {}; it is not looked up again", facts.addresses.join(", "))?;
    }
    if target.wire.is_none() {
        writeln!(out, "          through a proxy or HTTP/2: times are stamped by our own clock, not the kernel's")?;
    }
    if facts.engine.is_some() || facts.max_model_len.is_some() {
        let engine = facts.engine.as_deref().unwrap_or("unknown engine");
        let version = facts.version.as_deref().unwrap_or("");
        let longest = facts.max_model_len.map_or(String::new(), |n| format!("  sequences up to {n} tokens"));
        writeln!(out, "engine    {engine} {version}{longest}")?;
    }
    writeln!(
        out,
        "offers    exact answer lengths {}  running token counts {}  /tokenize {}  per-request metrics {}",
        yes(facts.exact_output),
        yes(facts.continuous_usage),
        yes(facts.tokenize),
        yes(facts.per_request_metrics)
    )?;
    writeln!(
        out,
        "metrics   {}",
        facts.metrics_url.as_deref().unwrap_or("none: only the client's own alerts can judge")
    )
}

fn plan(out: &mut dyn Write, prepared: &Prepared) -> std::io::Result<()> {
    let Prepared { ladder, lengths, scenario, .. } = prepared;
    let levels: Vec<String> = ladder.levels.iter().map(f64::to_string).collect();
    let unit = match ladder.kind {
        Loop::Closed => "streams",
        Loop::Open => "requests/s",
    };
    let time = |d: Duration| prometheus_duration(Duration::from_secs(d.as_secs_f64().ceil() as u64));
    writeln!(
        out,
        "ladder    {} {unit}, then narrow {} and confirm {}",
        levels.join(" "),
        scenario.ladder.narrow,
        scenario.ladder.confirm
    )?;
    writeln!(
        out,
        "a step    ramp {}, warm-up {} (or twice the P99 request before it), measure {}{}, up to {} for rules that lack observations",
        time(lengths.ramp),
        time(lengths.warmup),
        time(lengths.hold),
        prepared.longest_rule.as_ref().map_or(String::new(), |r| format!(" (as {r} needs)")),
        time(lengths.max_hold),
    )?;
    let alerts: Vec<&str> = prepared.rules.alerts().map(|a| a.name.as_str()).collect();
    writeln!(out, "judged by {}", if alerts.is_empty() { "nothing".into() } else { alerts.join(", ") })?;
    let limit = scenario
        .ladder
        .max_duration
        .map_or(String::new(), |d| format!("; no step begins that might not end within {}", time(d)));
    writeln!(
        out,
        "takes     {} when every step passes at once, {} at worst ({} steps){limit}",
        time(lengths.best_ladder(ladder)),
        time(lengths.worst_ladder(ladder)),
        ladder.most_steps()
    )
}

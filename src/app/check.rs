//! `plimsoll check`: everything but the load. Beside the probe, one request of the workload is sent, to
//! learn how long one takes.

use std::io::Write;
use std::sync::Arc;
use std::time::Duration;

use crate::cli::RunArgs;
use crate::error::{Exit, Refusal};
use crate::gpu::{self, Source};
use crate::ladder::Loop;
use crate::load::{LoadOptions, Loader, Target};
use crate::model::recording::Event;
use crate::model::request::{Outcome, RequestTimeline};
use crate::model::step::Load;
use crate::model::time::Clock;
use crate::model::units::{human_seconds, prometheus_duration};
use crate::rules::ENOUGH;
use crate::workload::Workload;

use super::prepare::Prepared;
use super::{probe, run, simulate};

/// What makes the prompts of a check differ from those of a run: it warms no cache for one.
const CHECK: &str = "check";

/// Probes target, metrics and GPU, and prints the plan.
pub fn check(args: &RunArgs) -> anyhow::Result<Exit> {
    let prepared = Prepared::new(args)?;
    let runtime = run::runtime(prepared.clock())?;
    let seen = runtime.block_on(look(&prepared))?;
    let mut page = Vec::new();
    {
        let out: &mut dyn Write = &mut page;
        describe(out, &seen.target)?;
        request(out, &seen.alone)?;
        match &seen.panel {
            Ok(Some(panel)) => write!(out, "{panel}")?,
            Ok(None) => writeln!(out, "gpu       not read: it is switched off")?,
            // The usual case: the client stands beside a server without being on its machine.
            Err(error) => {
                writeln!(out, "gpu       not read: {error}")?;
                if matches!(prepared.scenario.gpu.source, Source::Auto | Source::Nvml) {
                    let others = "--gpu dcgm=URL reads the exporter of the server's machine, smi=FILE its log";
                    writeln!(out, "          {others}")?;
                }
            }
        }
        plan(out, &prepared, &seen.alone)?;
    }
    let page = super::page(&String::from_utf8_lossy(&page));
    super::answer(|out| Ok(out.write_all(page.as_bytes())?))
}

/// What was found.
struct Seen {
    target: Arc<Target>,
    /// One request of the workload, sent by itself.
    alone: RequestTimeline,
    /// The GPU; none if it is switched off, or why it cannot be read.
    panel: Result<Option<gpu::Panel>, gpu::GpuError>,
}

async fn look(prepared: &Prepared) -> anyhow::Result<Seen> {
    let clock = Clock::start(prepared.clock());
    let mut scenario = prepared.scenario.clone();
    simulate::serve(&mut scenario, clock)?;
    let target = probe::target(prepared, &scenario, &clock).await?;
    probe::metrics(&target, &scenario, &prepared.rules).await?;
    let workload = probe::workload(&scenario, CHECK, &target)?;
    probe::fits(&workload, &target)?;
    let target = Arc::new(target);
    let alone = send_one(target.clone(), workload, clock, scenario.seed).await?;
    let panel = match gpu::check(&simulate::gpu(&scenario), clock).await {
        // What the run itself would say: it goes on, and why there is no GPU is one line.
        Err(error @ gpu::GpuError::Unavailable { .. }) if !scenario.gpu.required => Err(error),
        panel => Ok(panel.map_err(probe::gpu)?),
    };
    Ok(Seen { target, alone, panel })
}

/// Sends the workload's first request and sees it to its end.
async fn send_one(target: Arc<Target>, workload: Workload, clock: Clock, seed: u64) -> anyhow::Result<RequestTimeline> {
    let (events, mut ended) = tokio::sync::mpsc::unbounded_channel();
    let options = LoadOptions { seed, max_requests: Some(1), ..LoadOptions::default() };
    let mut loader = Loader::new(target, Arc::new(workload), clock, events, options);
    loader.raise_to(0, Load::Concurrency(1), Duration::ZERO);
    loader.finish().await;
    drop(loader);
    while let Some(event) = ended.recv().await {
        let Event::Request(timeline) = event else { continue };
        if let Outcome::Failed { class, detail, .. } = &timeline.outcome {
            let says = format!("a request of this workload failed ({}): {detail}", class.as_str());
            return Err(Refusal::target(says, "look into the server's log; under load it would fail just so").into());
        }
        return Ok(timeline);
    }
    anyhow::bail!("the request that was sent did not end")
}

fn request(out: &mut dyn Write, alone: &RequestTimeline) -> std::io::Result<()> {
    let time = |d: Option<Duration>| d.map_or_else(|| "-".into(), |d| human_seconds(d.as_secs_f64()));
    let count = |n: Option<u32>| n.map_or_else(|| "?".into(), |n| n.to_string());
    writeln!(
        out,
        "request   {} for {} prompt and {} answer tokens, alone; its first token came after {}",
        time(alone.e2e()),
        count(alone.usage.prompt_tokens),
        count(alone.usage.completion_tokens),
        time(alone.ttft())
    )
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

/// How long each level must be measured for the observations that a P99 needs, if a request takes as long
/// under load as it took alone: at the least, that is.
fn needed(prepared: &Prepared, alone: &RequestTimeline) -> Vec<(f64, Duration)> {
    let each = alone.e2e().unwrap_or_default().as_secs_f64();
    let Prepared { ladder, .. } = prepared;
    let for_one = match ladder.kind {
        Loop::Closed => each * ENOUGH,
        Loop::Open => ENOUGH,
    };
    let wanted = if prepared.rules.reads_quantiles() { for_one } else { 0.0 };
    let needs = |level: f64| Duration::try_from_secs_f64(wanted / level).unwrap_or(Duration::MAX);
    ladder.levels.iter().map(|&level| (level, needs(level))).collect()
}

/// Which levels get the observations that a P99 needs, and which will not.
fn samples(out: &mut dyn Write, prepared: &Prepared, needed: &[(f64, Duration)], unit: &str) -> std::io::Result<()> {
    let Prepared { lengths, .. } = prepared;
    let names = |of: &[(f64, Duration)]| of.iter().map(|(level, _)| level.to_string()).collect::<Vec<_>>().join(", ");
    let (in_vain, rest): (Vec<_>, Vec<_>) = needed.iter().copied().partition(|(_, need)| *need > lengths.max_hold);
    let longer: Vec<(f64, Duration)> = rest.iter().copied().filter(|(_, need)| *need > lengths.hold).collect();
    if let Some((_, most)) = longer.first() {
        writeln!(
            out,
            "          at {} {} that takes longer, up to {}, for the {ENOUGH:.0} first tokens that a P99 needs",
            names(&longer),
            counted(&longer, unit),
            time(*most)
        )?;
    }
    if let Some((_, most)) = in_vain.first() {
        let begin = rest.first().map_or_else(String::new, |(level, _)| format!(", or begin at {level}"));
        writeln!(
            out,
            "          at {} {} it would take {} and more for them, so these will not be judged; --max-hold {} gives them time{begin}",
            names(&in_vain),
            counted(&in_vain, unit),
            time(in_vain.last().map_or(*most, |(_, least)| *least)),
            time(most.mul_f64(1.25)),
        )?;
    }
    Ok(())
}

/// The unit behind a list of levels: `1 stream`, `1, 2 streams`.
fn counted<'a>(levels: &[(f64, Duration)], unit: &'a str) -> &'a str {
    match levels {
        [(1.0, _)] if unit == "streams" => "stream",
        _ => unit,
    }
}

/// To the second, rounded up.
fn time(d: Duration) -> String {
    prometheus_duration(Duration::from_secs(d.as_secs_f64().ceil() as u64))
}

fn plan(out: &mut dyn Write, prepared: &Prepared, alone: &RequestTimeline) -> std::io::Result<()> {
    let Prepared { ladder, lengths, scenario, .. } = prepared;
    let levels: Vec<String> = ladder.levels.iter().map(f64::to_string).collect();
    let unit = match ladder.kind {
        Loop::Closed => "streams",
        Loop::Open => "requests/s",
    };
    let then = match (scenario.ladder.narrow, scenario.ladder.confirm) {
        (true, true) => "; from the first that fires down to the boundary, and both its sides once more",
        (true, false) => "; from the first that fires down to the boundary",
        (false, true) => "; the first that fires and the one below it once more",
        (false, false) => "; to the first that fires",
    };
    writeln!(out, "ladder    {} {unit}{then}", levels.join(" "))?;
    writeln!(
        out,
        "a step    ramp {}, warm-up {} (or twice the P99 request before it), measure {}{}, up to {} for rules that lack observations",
        time(lengths.ramp),
        time(lengths.warmup),
        time(lengths.hold),
        prepared.longest_rule.as_ref().map_or(String::new(), |r| format!(" (as {r} needs)")),
        time(lengths.max_hold),
    )?;
    let needed = needed(prepared, alone);
    samples(out, prepared, &needed, unit)?;
    if scenario.time_scale != 1.0 {
        writeln!(
            out,
            "scale     every `for`, range and interval of the rules times {}; ramp, warm-up and drain are not scaled",
            scenario.time_scale
        )?;
    }
    let alerts: Vec<&str> = prepared.rules.alerts().map(|a| a.name.as_str()).collect();
    writeln!(out, "judged by {}", if alerts.is_empty() { "nothing".into() } else { alerts.join(", ") })?;
    let limit = scenario
        .ladder
        .max_duration
        .map_or(String::new(), |d| format!("; no step begins that might not end within {}", time(d)));
    writeln!(
        out,
        "takes     {} when every step of the climb passes, {} at worst ({} steps){limit}",
        time(needed.iter().map(|(_, need)| lengths.likely(*need)).sum()),
        time(lengths.worst_ladder(ladder)),
        ladder.most_steps()
    )
}

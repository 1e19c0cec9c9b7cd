//! `plimsoll run`: left, then right.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use tokio::sync::watch;

use crate::analyze;
use crate::cli::RunArgs;
use crate::error::{Exit, Refusal};
use crate::gpu;
use crate::ladder::Loop;
use crate::load::{HealthWatch, LoadOptions, Loader, allow_streams};
use crate::model::recording::{FORMAT, Header, Recording};
use crate::model::time::{Clock, ClockKind};
use crate::model::verdict::{CheckState, RunOutcome, Verdict};
use crate::record::{self, Redactor, Writer};
use crate::rules::Follow;
use crate::scrape::{Page, Poller};

use super::launch::Server;
use super::live::{Live, PrefixReset, keep_pages};
use super::prepare::Prepared;
use super::progress::Progress;
use super::{judge, probe, simulate};

/// Where results go without `--out`.
const RESULTS: &str = "results";
/// What the stand-in is called where a URL would stand: its real port changes from run to run.
const SIM_URL: &str = "sim://";

/// Runs the ladder and answers.
pub fn run(args: &RunArgs) -> anyhow::Result<Exit> {
    let prepared = Prepared::new(args)?;
    let runtime = runtime(prepared.clock())?;
    let (folder, recording) = runtime.block_on(live(&prepared, args))?;
    drop(runtime);
    let verdict = judge::answer(&recording, &prepared.scenario, &prepared.rules, &folder, Some(&folder))?;
    super::tell(&verdict, args.json, Some(&folder))?;
    Ok(exit(&verdict, prepared.scenario.rules.enabled))
}

/// A runtime for the clock: paused and single-threaded for the stand-in, so that the same seed gives
/// the same bytes.
pub fn runtime(clock: ClockKind) -> anyhow::Result<tokio::runtime::Runtime> {
    let mut builder = match clock {
        ClockKind::Simulated => tokio::runtime::Builder::new_current_thread(),
        ClockKind::Real => tokio::runtime::Builder::new_multi_thread(),
    };
    if clock == ClockKind::Simulated {
        builder.start_paused(true);
    }
    builder.enable_all().build().context("starting the runtime")
}

/// The exit code that a verdict stands for; see [`Exit`] for the order.
pub fn exit(verdict: &Verdict, judged: bool) -> Exit {
    use crate::model::recording::StopReason;
    match verdict.stopped {
        Some(StopReason::Interrupted) => return Exit::Interrupted,
        Some(StopReason::TargetLost) => return Exit::Target,
        _ => {}
    }
    let checks = verdict.gate.iter().flat_map(|g| &g.checks);
    if checks.clone().any(|c| c.state == CheckState::Failed) {
        return Exit::GateFailed;
    }
    // What could not be decided is not a pass, and no failure of the server either.
    if checks.into_iter().any(|c| c.state == CheckState::Unresolved) {
        return Exit::Inconclusive;
    }
    match verdict.outcome {
        RunOutcome::Inconclusive if judged => Exit::Inconclusive,
        _ => Exit::Done,
    }
}

/// Sets everything up, climbs, and leaves the recording in its folder.
async fn live(prepared: &Prepared, args: &RunArgs) -> anyhow::Result<(PathBuf, Recording)> {
    let clock = Clock::start(prepared.clock());
    let mut scenario = prepared.scenario.clone();
    let mut progress = Progress::new(clock.kind(), args.no_tui);
    let interrupt = interrupts();

    let most = match prepared.ladder.kind {
        Loop::Closed => prepared.ladder.levels.iter().copied().fold(0.0, f64::max) as u64,
        Loop::Open => u64::from(scenario.arrivals.max_in_flight),
    };
    allow_streams(most).map_err(|e| probe::refuse(&e))?;
    // The folder first: a full or read-only disk must cost no run.
    let secrets = probe::secrets(&scenario, prepared.api_key.as_deref());
    let redactor = Redactor::new(secrets.iter().cloned());
    let ours = args.out.as_deref().is_none_or(|out| !out.exists());
    let folder = record::create_folder(Path::new(RESULTS), args.out.as_deref(), &scenario.name, clock.epoch_unix_ms())?;

    let _unless_kept = ours.then(|| Unkept(folder.clone()));

    simulate::serve(&mut scenario, clock)?;
    let mut server = None;
    if args.launch {
        let spec = scenario.server.as_ref().context("a scenario without [server]")?;
        let log = folder.join("server.log");
        progress.say(&format!("starting the server; its log is {}", log.display()));
        server = Some(Server::start(spec, &log, &secrets)?);
    }
    let target = match &mut server {
        None => tokio::select! {
            biased;
            target = probe::target(prepared, &scenario, &clock) => target?,
            () = interrupted(interrupt.clone()) => return Err(interrupted_early().into()),
        },
        Some(server) => {
            let limit = scenario.server.as_ref().map_or(Duration::ZERO, |s| s.ready_timeout);
            probe::until_ready(prepared, &scenario, server, &clock, limit, &interrupt).await?
        }
    };
    let mut facts = target.facts.clone();
    if !facts.addresses.is_empty() {
        progress.say(&format!("the server's name stands for {}", facts.addresses.join(", ")));
    }
    if let Some(profile) = &scenario.sim {
        // The port is the system's choice; equal seeds must give equal bytes.
        facts.url = format!("{SIM_URL}{}", profile.profile);
        facts.metrics_url = facts.metrics_url.map(|_| format!("{SIM_URL}{}/metrics", profile.profile));
    }
    tokio::select! {
        biased;
        page = probe::metrics(&target, &scenario, &prepared.rules) => page?,
        () = interrupted(interrupt.clone()) => return Err(interrupted_early().into()),
    }

    let nonce = scenario.nonce.clone().unwrap_or_else(nonce);
    let workload = probe::workload(&scenario, &nonce, &target)?;
    probe::fits(&workload, &target)?;

    let header = Header {
        format: FORMAT.into(),
        tool_version: env!("CARGO_PKG_VERSION").into(),
        scenario: scenario.name.clone(),
        scenario_toml: prepared.scenario.to_toml(),
        rule_files: prepared.rule_files.clone(),
        clock: clock.kind(),
        epoch_unix_ms: clock.epoch_unix_ms(),
        nonce,
        seed: scenario.seed,
        time_scale: scenario.time_scale,
        target: facts,
        server_command: server.as_ref().map(|s| s.argv.clone()),
    };
    let writer = Writer::create(&folder, header, redactor.clone())?;
    record::write_file(&folder, "scenario.toml", writer.header().scenario_toml.as_bytes())?;
    if let Some(baseline) = &prepared.baseline {
        record::write_file(&folder, super::gate::BASELINE, baseline.as_bytes())?;
    }
    progress.climb(prepared, writer.header());
    let tape = super::tape::Tape::new(writer, clock, interrupt);

    let poller = match &target.facts.metrics_url {
        Some(url) => {
            let spec = scenario.metrics.scaled(scenario.time_scale);
            let poller = Poller::start(Page::server(url), &spec, clock, tape.sender())?;
            // Counters show only what comes after the first scrape.
            poller.first().await;
            // At once: a run that is killed keeps the page it began with.
            if let Some(page) = poller.first_page() {
                record::write_file(&folder, "metrics-first.prom", &page)?;
            }
            Some(poller)
        }
        None => None,
    };
    let gpu = gpu::start(&simulate::gpu(&scenario), clock, tape.sender()).await.map_err(probe::gpu)?;
    let reset = scenario
        .ladder
        .prefix_reset
        .then(|| PrefixReset { http: target.http.clone(), url: target.base.beside("reset_prefix_cache") });
    let options = LoadOptions { seed: scenario.seed, arrivals: scenario.arrivals, ..LoadOptions::default() };
    let health = HealthWatch::start(clock, tape.sender(), target.lateness.clone());
    let loader = Loader::new(Arc::new(target), Arc::new(workload), clock, tape.sender(), options);
    let follow = Follow::new(
        &prepared.rules,
        &tape.recording,
        &analyze::targets(&scenario),
        (analyze::reading(&scenario), analyze::timing(&scenario)),
        poller.is_some(),
    );
    let server_of_ours = server.as_mut();
    let live = Live {
        prepared,
        clock,
        tape,
        loader,
        health,
        poller,
        gpu,
        server: server_of_ours,
        reset,
        follow,
        progress,
        void: false,
    };
    let (recording, pages) = live.climb().await?;
    keep_pages(&folder, &pages)?;
    if let Some(mut server) = server {
        tokio::task::spawn_blocking(move || server.stop()).await.context("stopping the server")?;
    }
    Ok((folder, recording))
}

/// The folder of a run that may not come about: gone again if nothing was put into it.
struct Unkept(PathBuf);

impl Drop for Unkept {
    fn drop(&mut self) {
        // Only an empty folder can be removed so.
        let _ = std::fs::remove_dir(&self.0);
    }
}

/// Ctrl-C before any load.
fn interrupted_early() -> Refusal {
    let says = "interrupted while the server was probed: no load was applied".into();
    Refusal { exit: Exit::Interrupted, says, hint: String::new() }
}

/// Returns when the user interrupts, and only then.
async fn interrupted(mut interrupts: watch::Receiver<u32>) {
    if interrupts.wait_for(|n| *n > 0).await.is_err() {
        std::future::pending().await
    }
}

/// Counts Ctrl-Cs. The first ends the run cleanly; the second ends the process at once.
pub fn interrupts() -> watch::Receiver<u32> {
    let (count, receiver) = watch::channel(0);
    tokio::spawn(async move {
        // What `timeout`, CI and Kubernetes send ends a run as cleanly as Ctrl-C does.
        let Ok(mut ended) = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate()) else { return };
        loop {
            tokio::select! {
                typed = tokio::signal::ctrl_c() => if typed.is_err() { return },
                _ = ended.recv() => {}
            }
            count.send_modify(|n| *n += 1);
            if *count.borrow() > 1 {
                super::tui::give_back();
                std::process::exit(i32::from(Exit::Interrupted.code()));
            }
        }
    });
    receiver
}

/// Sixteen hexadecimal digits that no other run has: the keys of a fresh hasher are random.
fn nonce() -> String {
    use std::hash::{BuildHasher, Hasher};
    format!("{:016x}", std::collections::hash_map::RandomState::new().build_hasher().finish())
}

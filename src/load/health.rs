//! How the client itself fares: a load generator that is the bottleneck must say so.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::mpsc::UnboundedSender;
use tokio::task::JoinSet;

use super::lateness::Lateness;
use super::limits;
use crate::model::recording::{Event, Health};
use crate::model::time::{Clock, ClockKind, Offset};

/// Between two ticks of a ticker.
const TICK: Duration = Duration::from_millis(10);

/// Between two readings.
const PERIOD: Duration = Duration::from_secs(1);

/// Kernel ticks a second in `/proc`: 100 on every Linux, whatever the kernel's own clock.
const PROC_TICKS_PER_S: f64 = 100.0;

/// Reads the client's health once a second until it is dropped.
#[derive(Debug)]
pub struct HealthWatch {
    /// Dropping it ends the tasks.
    _tasks: JoinSet<()>,
}

impl HealthWatch {
    /// Begins to send [`Event::Health`] each second. Under simulated time nothing is sent: a paused clock has no lag, and the
    /// numbers of this machine would make equal seeds differ.
    pub fn start(clock: Clock, events: UnboundedSender<Event>, lateness: Arc<Lateness>) -> HealthWatch {
        let mut tasks = JoinSet::new();
        if clock.kind() == ClockKind::Real {
            let lag = Arc::new(AtomicU64::new(0));
            // One a worker thread. Where they run is the runtime's choice, but no thread can be stuck for long without one of
            // them being late.
            for _ in 0..tokio::runtime::Handle::current().metrics().num_workers() {
                tasks.spawn(tick(clock, lag.clone()));
            }
            tasks.spawn(read(clock, lag, events, lateness));
        }
        HealthWatch { _tasks: tasks }
    }
}

/// Wakes up on a grid, and keeps the worst lateness.
async fn tick(clock: Clock, lag: Arc<AtomicU64>) {
    let mut due = clock.now();
    loop {
        due = (due + TICK).max(clock.now());
        clock.sleep_until(due).await;
        let late = clock.now().since(due);
        lag.fetch_max(u64::try_from(late.as_micros()).unwrap_or(u64::MAX), Ordering::Relaxed);
    }
}

async fn read(clock: Clock, lag: Arc<AtomicU64>, events: UnboundedSender<Event>, lateness: Arc<Lateness>) {
    let cores = std::thread::available_parallelism().ok().map(|n| n.get() as f64);
    let (files_limit, ports) = (limits::open_files(), limits::ports());
    let mut due = clock.now();
    let (mut last, mut used) = (due, cpu_s());
    loop {
        due = due + PERIOD;
        clock.sleep_until(due).await;
        let (at, cpu) = (clock.now(), cpu_s());
        let seen = lateness.look();
        let health = Health {
            at,
            lag_max_us: Some(lag.swap(0, Ordering::Relaxed)),
            cpu_cores: cores_used(last, used, at, cpu),
            open_files: open_files(),
            cores,
            files_limit,
            connections: Some(seen.connections),
            ports,
            send_late_max_us: Some(seen.send_max_us),
            read_late_max_us: seen.read_max_us,
            blur_p99_us: seen.blur_p99_us,
            stamped_reads: Some(seen.stamped),
            unstamped_reads: Some(seen.unstamped),
        };
        (last, used) = (at, cpu);
        if events.send(Event::Health(health)).is_err() {
            return;
        }
    }
}

fn cores_used(from: Offset, used_then: Option<f64>, to: Offset, used_now: Option<f64>) -> Option<f64> {
    let wall = to.since(from).as_secs_f64();
    (wall > 0.0).then_some(()).and_then(|()| Some((used_now? - used_then?).max(0.0) / wall))
}

/// CPU time of this process, s; `None` where there is no `/proc`.
fn cpu_s() -> Option<f64> {
    std::fs::read_to_string("/proc/self/stat").ok().as_deref().and_then(cpu_of)
}

/// User and system time out of the text of `/proc/self/stat`, s.
fn cpu_of(stat: &str) -> Option<f64> {
    // The program's name is in brackets, and may have blanks and brackets in it.
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    let ticks = |i: usize| fields.get(i)?.parse::<f64>().ok();
    Some((ticks(11)? + ticks(12)?) / PROC_TICKS_PER_S)
}

/// Open file descriptors of this process; `None` where there is no `/proc`.
fn open_files() -> Option<u64> {
    // Newer kernels tell the number as the folder's size; listing ten thousand would cost the streams their CPU.
    if let Some(told) = std::fs::metadata("/proc/self/fd").ok().map(|m| m.len()).filter(|n| *n > 0) {
        return Some(told);
    }
    // The one that lists them is not counted.
    std::fs::read_dir("/proc/self/fd").ok().map(|d| (d.count() as u64).saturating_sub(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_time_is_read_behind_any_program_name() {
        let stat = "7 (a ) b) S 1 7 7 0 -1 4194304 100 0 0 0 250 50 0 0 20 0 3 0 100 0 0";
        assert_eq!(cpu_of(stat), Some(3.0));
        assert_eq!(cpu_of("nonsense"), None);
        let s = Offset::from_millis;
        assert_eq!(cores_used(s(0), Some(1.0), s(2_000), Some(2.0)), Some(0.5));
        assert_eq!(cores_used(s(0), None, s(2_000), Some(2.0)), None);
    }

    #[tokio::test(start_paused = true)]
    async fn simulated_time_has_no_health() {
        let clock = Clock::start(ClockKind::Simulated);
        let (events, mut seen) = tokio::sync::mpsc::unbounded_channel();
        let watch = HealthWatch::start(clock, events, Arc::default());
        clock.sleep_until(Offset::from_millis(5_000)).await;
        drop(watch);
        assert!(seen.recv().await.is_none());
    }

    #[tokio::test]
    async fn a_real_clock_tells_all_three() {
        let (events, mut seen) = tokio::sync::mpsc::unbounded_channel();
        let _watch = HealthWatch::start(Clock::start(ClockKind::Real), events, Arc::default());
        let Some(Event::Health(health)) = seen.recv().await else { panic!("no reading") };
        assert!(health.lag_max_us.is_some());
        if cfg!(target_os = "linux") {
            assert!(health.cpu_cores.is_some() && health.open_files.is_some_and(|n| n > 2));
        }
    }
}

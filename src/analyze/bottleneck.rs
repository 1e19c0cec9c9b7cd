//! Whether our own client was the bottleneck of a step: each of its readings has a limit.
//!
//! A limit on time counts as passed when more than one second in twenty was over it: one hiccup of the machine moves no
//! percentile of a step. Stamps that the kernel took are as good on a busy machine as on an idle one, so that lateness of the
//! runtime counts only where stamps are our own; late reads only where chunks shared one.

use crate::model::recording::Health;
use crate::model::time::Span;
use crate::model::units::human_seconds;
use crate::model::verdict::{Caveat, ClientHealth, Slo};

use super::quantiles::at;

/// Share of the seconds of a step that may be over a limit.
const SECONDS_OVER: f64 = 0.05;
/// Share of the target for a gap by which stamps may be late.
const OF_GAP: f64 = 0.25;
/// Share of the target for the first token by which requests may be sent late.
const OF_TTFT: f64 = 0.1;
/// Share of our cores from which on they count as used up: above it, work waits for them.
const OF_CORES: f64 = 0.95;
/// Share of the allowed files, and of the local ports, from which on they count as used up.
const OF_HANDLES: f64 = 0.95;
/// Share of reads without the kernel's stamp from which on stamps count as our own.
const UNSTAMPED: f64 = 0.01;

/// How the client fared over a window.
pub fn health(readings: &[Health], window: Span, littles_law_residual: Option<f64>) -> ClientHealth {
    let within = within(readings, window);
    let p99 = |of: fn(&Health) -> Option<u64>| {
        let mut all: Vec<f64> = within.iter().filter_map(|h| of(h)).map(seconds).collect();
        all.sort_by(f64::total_cmp);
        at(&all, 0.99)
    };
    ClientHealth {
        lag_p99_s: p99(|h| h.lag_max_us),
        cpu_cores: mean(within.iter().filter_map(|h| h.cpu_cores)),
        kernel_stamped_ratio: stamped(&within),
        read_late_p99_s: p99(|h| h.read_late_max_us),
        blur_p99_s: p99(|h| h.blur_p99_us),
        send_late_p99_s: p99(|h| h.send_late_max_us),
        littles_law_residual,
    }
}

/// One caveat for each reading that was past its limit; none if the client kept up, or nothing was read.
pub fn bottlenecks(readings: &[Health], window: Span, slo: &Slo) -> Vec<Caveat> {
    let within = within(readings, window);
    let mut out = Vec::new();
    let cores = "run plimsoll on cores of its own, or with real-time priority (`chrt -f 1 plimsoll ...`)";

    let (gap, ttft) = (slo.itl_p99_s * OF_GAP, slo.ttft_p99_s * OF_TTFT);
    let own_stamps = stamped(&within).is_none_or(|share| share < 1.0 - UNSTAMPED);
    if let Some(over) = Over::of(&within, gap, |h| h.lag_max_us).filter(|_| own_stamps) {
        out.push(Caveat::new(
            "client_late",
            format!("our own client got no CPU for {over}: what it measured may be its own lateness"),
            cores,
        ));
    }
    if let Some(over) = Over::of(&within, gap, |h| h.blur_p99_us) {
        out.push(Caveat::new(
            "client_reads_late",
            format!("our own client read so late that chunks shared a read, and their stamps may be off by {over}"),
            cores,
        ));
    }
    if let Some(over) = Over::of(&within, ttft, |h| h.send_late_max_us) {
        out.push(Caveat::new(
            "client_sends_late",
            format!("our own client sent requests late by {over}: the load was not what it was meant to be"),
            cores,
        ));
    }
    let used = mean(within.iter().filter_map(|h| Some(h.cpu_cores? / h.cores?)));
    if let Some(used) = used.filter(|u| *u > OF_CORES) {
        out.push(Caveat::new(
            "client_cpu",
            format!("our own client used {:.0} % of the cores that it may use: it was the bottleneck", used * 100.0),
            "give plimsoll more cores, or lower the load",
        ));
    }
    let most = |used: fn(&Health) -> Option<u64>, limit: fn(&Health) -> Option<u64>| {
        within
            .iter()
            .filter_map(|h| Some((used(h)?, limit(h)?)))
            .find(|(used, limit)| *used as f64 >= OF_HANDLES * *limit as f64)
    };
    if let Some((used, limit)) = most(|h| h.open_files, |h| h.files_limit) {
        out.push(Caveat::new(
            "client_files",
            format!("our own client had {used} files open, of {limit} that it may: connections may have failed for it"),
            "raise the limit of open files (`ulimit -n`)",
        ));
    }
    if let Some((used, limit)) = most(|h| h.connections, |h| h.ports) {
        out.push(Caveat::new(
            "client_ports",
            format!("our own client had {used} connections open, and this machine has {limit} local ports for them"),
            "widen net.ipv4.ip_local_port_range",
        ));
    }
    out
}

/// Said where stamps are our own: they are as late as we are. It does not make a step doubtful as long as we were not.
pub fn own_stamps(readings: &[Health], window: Span) -> Option<Caveat> {
    stamped(&within(readings, window)).filter(|share| *share < 1.0 - UNSTAMPED).map(|share| {
        Caveat::new(
            "user_stamps",
            format!("{:.0} % of the reads were stamped by our own clock, not by the kernel", (1.0 - share) * 100.0),
            "the kernel stamps TCP connections on Linux, without a proxy and without HTTP/2",
        )
    })
}

/// The seconds in which a reading was over its limit.
struct Over {
    worst_s: f64,
    over: usize,
    of: usize,
}

impl Over {
    /// `None` if that was the case in few enough of them.
    fn of(within: &[&Health], limit_s: f64, reading: fn(&Health) -> Option<u64>) -> Option<Over> {
        let all: Vec<f64> = within.iter().filter_map(|h| reading(h)).map(seconds).collect();
        let over = all.iter().filter(|s| **s > limit_s).count();
        let worst_s = all.iter().copied().fold(0.0, f64::max);
        (over as f64 > SECONDS_OVER * all.len() as f64).then_some(Over { worst_s, over, of: all.len() })
    }
}

impl std::fmt::Display for Over {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "up to {} in {} of {} seconds", human_seconds(self.worst_s), self.over, self.of)
    }
}

fn within(readings: &[Health], window: Span) -> Vec<&Health> {
    readings.iter().filter(|h| window.contains(h.at)).collect()
}

/// Share of the reads that the kernel stamped. `None` if nothing was read, or nothing tells.
fn stamped(within: &[&Health]) -> Option<f64> {
    let sum = |of: fn(&Health) -> Option<u64>| within.iter().filter_map(|h| of(h)).sum::<u64>() as f64;
    let (with, without) = (sum(|h| h.stamped_reads), sum(|h| h.unstamped_reads));
    (with + without > 0.0).then(|| with / (with + without))
}

fn mean(values: impl Iterator<Item = f64>) -> Option<f64> {
    let (sum, n) = values.fold((0.0, 0_u32), |(s, n), v| (s + v, n + 1));
    (n > 0).then(|| sum / f64::from(n))
}

fn seconds(us: u64) -> f64 {
    us as f64 / 1e6
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::time::Offset;

    /// Twenty seconds of a client that is well, of which `spoilt` are made worse by `how`.
    fn readings(spoilt: u64, how: impl Fn(&mut Health)) -> Vec<Health> {
        (0..20)
            .map(|s| {
                let mut h = Health {
                    at: Offset::from_millis(s * 1_000 + 500),
                    lag_max_us: Some(1_000),
                    cpu_cores: Some(0.5),
                    open_files: Some(100),
                    cores: Some(1.0),
                    files_limit: Some(1_024),
                    connections: Some(60),
                    ports: Some(28_000),
                    send_late_max_us: Some(300),
                    read_late_max_us: Some(900),
                    blur_p99_us: Some(256),
                    stamped_reads: Some(1_000),
                    unstamped_reads: Some(0),
                };
                if s < spoilt {
                    how(&mut h);
                }
                h
            })
            .collect()
    }

    fn codes(readings: &[Health]) -> Vec<String> {
        let slo = Slo { ttft_p99_s: 1.0, itl_p99_s: 0.1, ..Slo::default() };
        let window = Span::new(Offset::ZERO, Offset::from_millis(20_000));
        bottlenecks(readings, window, &slo).into_iter().map(|c| c.code).collect()
    }

    #[test]
    fn every_reading_has_a_limit_and_names_the_bottleneck() {
        assert!(codes(&readings(0, |_| {})).is_empty());
        assert!(codes(&[]).is_empty());
        for (how, code) in [
            ((|h| h.blur_p99_us = Some(32_768)) as fn(&mut Health), Some("client_reads_late")),
            (|h| h.blur_p99_us = Some(16_384), None),
            (|h| h.send_late_max_us = Some(101_000), Some("client_sends_late")),
            (|h| h.send_late_max_us = Some(99_000), None),
            // Late wake-ups spoil our own stamps and not the kernel's.
            (|h| h.lag_max_us = Some(200_000), None),
            (|h| h.read_late_max_us = Some(200_000), None),
            (|h| (h.lag_max_us, h.unstamped_reads) = (Some(200_000), Some(100)), None),
            (|h| (h.lag_max_us, h.unstamped_reads) = (Some(200_000), Some(1_000)), Some("client_late")),
            (|h| h.open_files = Some(1_000), Some("client_files")),
            (|h| h.connections = Some(27_000), Some("client_ports")),
        ] {
            let want: Vec<String> = code.into_iter().map(str::to_owned).collect();
            assert_eq!(codes(&readings(2, how)), want);
        }
        assert_eq!(codes(&readings(20, |h| h.cpu_cores = Some(0.97))), ["client_cpu"]);
        assert!(codes(&readings(10, |h| h.cpu_cores = Some(1.0))).is_empty(), "busy, but not all the time");
    }

    #[test]
    fn stamps_of_our_own_are_said() {
        let window = Span::new(Offset::ZERO, Offset::from_millis(20_000));
        let said = |spoilt, n| own_stamps(&readings(spoilt, |h| h.unstamped_reads = Some(n)), window).map(|c| c.code);
        assert_eq!(said(1, 5), None, "the first reads of a run often lack the stamp");
        assert_eq!(said(20, 500).as_deref(), Some("user_stamps"));
    }

    #[test]
    fn one_second_in_twenty_is_forgiven() {
        assert!(codes(&readings(1, |h| h.send_late_max_us = Some(900_000))).is_empty());
        assert_eq!(codes(&readings(2, |h| h.send_late_max_us = Some(900_000))), ["client_sends_late"]);
    }

    #[test]
    fn a_recording_that_tells_of_no_stamps_is_taken_for_our_own() {
        let old = |h: &mut Health| *h = Health { at: h.at, lag_max_us: Some(200_000), ..Health::default() };
        assert_eq!(codes(&readings(20, old)), ["client_late"]);
    }
}

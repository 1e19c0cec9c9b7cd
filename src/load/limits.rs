//! What this machine allows: open files and local ports, looked at before any load.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::probe::ProbeError;

/// Files that are open beside the streams: the recording, the scraper, the runtime, the terminal.
const SPARE_FILES: u64 = 64;

/// Raises the limit of open files to what is allowed, and says whether `streams` connections fit under it, and into the
/// machine's local ports.
///
/// # Errors
/// If they do not fit.
pub fn allow_streams(streams: u64) -> Result<(), ProbeError> {
    let limit = getrlimit(Resource::Nofile);
    let mut allowed = limit.current;
    if allowed.is_some_and(|soft| soft < streams.saturating_add(SPARE_FILES)) {
        let raised = Rlimit { current: limit.maximum, maximum: limit.maximum };
        // If it is refused, the old limit is what counts.
        if setrlimit(Resource::Nofile, raised).is_ok() {
            allowed = limit.maximum;
        }
    }
    judge(streams, allowed, ports())
}

/// How many files this process may have open; `None` if there is no limit.
pub(super) fn open_files() -> Option<u64> {
    getrlimit(Resource::Nofile).current
}

/// How many local ports connections to one address may take; `None` where that is not known.
pub(super) fn ports() -> Option<u64> {
    std::fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range").ok().and_then(|t| ports_of(&t))
}

fn judge(streams: u64, files: Option<u64>, ports: Option<u64>) -> Result<(), ProbeError> {
    if let Some(files) = files.filter(|f| *f < streams.saturating_add(SPARE_FILES)) {
        return Err(ProbeError::Setting {
            what: format!(
                "{streams} streams need {} open files, and this process may have {files}",
                streams + SPARE_FILES
            ),
            hint: format!(
                "`ulimit -n {}`, or fewer streams (in an open loop: a lower arrivals.max_in_flight)",
                streams + SPARE_FILES
            ),
        });
    }
    if let Some(ports) = ports.filter(|p| *p < streams) {
        return Err(ProbeError::Setting {
            what: format!("{streams} streams need as many local ports, and this machine has {ports} for one server"),
            hint: "widen net.ipv4.ip_local_port_range, or fewer streams".into(),
        });
    }
    Ok(())
}

/// How many ports a range such as `32768 60999` holds.
fn ports_of(text: &str) -> Option<u64> {
    let mut ends = text.split_whitespace().map(str::parse::<u64>);
    let (low, high) = (ends.next()?.ok()?, ends.next()?.ok()?);
    (high >= low).then(|| high - low + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_named_with_what_is_needed() {
        assert_eq!(judge(1_000, Some(2_000), Some(28_232)), Ok(()));
        assert_eq!(judge(1_000_000, None, None), Ok(()));
        let e = judge(1_000, Some(1_024), None).unwrap_err();
        assert_eq!(e.to_string(), "1000 streams need 1064 open files, and this process may have 1024");
        assert_eq!(e.hint(), "`ulimit -n 1064`, or fewer streams (in an open loop: a lower arrivals.max_in_flight)");
        assert!(judge(30_000, None, Some(28_232)).unwrap_err().to_string().contains("28232"));
        assert_eq!(ports_of("32768\t60999\n"), Some(28_232));
    }
}

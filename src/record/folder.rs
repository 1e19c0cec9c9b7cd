//! The folder of a run's results.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::RUN_FILE;

/// Why a folder cannot take a run's results.
#[derive(Debug, thiserror::Error)]
pub enum FolderError {
    /// It could not be made.
    #[error("the result folder {} could not be made", .path.display())]
    Create {
        /// The folder.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// It holds a recording already.
    #[error("the result folder {} holds a recording already, expected a new or empty folder", .path.display())]
    Taken {
        /// The folder.
        path: PathBuf,
    },
    /// A file in it could not be written.
    #[error("{} could not be written", .path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
}

/// Makes the folder of a run: `out` itself if it is given, else `base/<utc>-<scenario>`, with a
/// number behind where that name is taken. Called before any load, so that a full or read-only
/// disk costs no run.
///
/// # Errors
/// If it cannot be made, or `out` holds a recording.
pub fn create_folder(base: &Path, out: Option<&Path>, scenario: &str, unix_ms: i64) -> Result<PathBuf, FolderError> {
    if let Some(out) = out {
        make_all(out)?;
        if out.join(RUN_FILE).exists() {
            return Err(FolderError::Taken { path: out.to_owned() });
        }
        return Ok(out.to_owned());
    }
    make_all(base)?;
    let name = folder_name(scenario, unix_ms);
    for n in 1_u32.. {
        let path = base.join(if n == 1 { name.clone() } else { format!("{name}-{n}") });
        match fs::create_dir(&path) {
            Ok(()) => return Ok(path),
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
            Err(source) => return Err(FolderError::Create { path, source }),
        }
    }
    unreachable!("a file system holds fewer than 2^32 folders")
}

/// Writes one further file of the run, such as `metrics-first.prom`.
///
/// # Errors
/// If it cannot be written.
pub fn write_file(folder: &Path, name: &str, content: &[u8]) -> Result<(), FolderError> {
    let path = folder.join(name);
    fs::write(&path, content).map_err(|source| FolderError::Write { path, source })
}

fn make_all(path: &Path) -> Result<(), FolderError> {
    fs::create_dir_all(path).map_err(|source| FolderError::Create { path: path.to_owned(), source })
}

/// `20261201T063000Z-small-pool`.
fn folder_name(scenario: &str, unix_ms: i64) -> String {
    let utc = jiff::Timestamp::from_millisecond(unix_ms).unwrap_or_default();
    let safe = |c: char| if c.is_ascii_alphanumeric() || matches!(c, '-' | '_') { c } else { '-' };
    let scenario: String = scenario.chars().take(60).map(safe).collect();
    format!("{}-{scenario}", utc.strftime("%Y%m%dT%H%M%SZ"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_sort_by_time_and_hold_no_separator() {
        assert_eq!(folder_name("a/b ü", 1_767_225_600_123), "20260101T000000Z-a-b--");
    }

    #[test]
    fn a_taken_name_gets_a_number_and_a_recording_is_never_overwritten() {
        let base = std::env::temp_dir().join(format!("plimsoll-folder-{}", std::process::id()));
        let first = create_folder(&base, None, "x", 0).unwrap();
        let second = create_folder(&base, None, "x", 0).unwrap();
        assert_eq!(first.file_name().unwrap(), "19700101T000000Z-x");
        assert_eq!(second.file_name().unwrap(), "19700101T000000Z-x-2");
        assert_eq!(create_folder(&base, Some(&first), "x", 0).unwrap(), first);
        write_file(&first, RUN_FILE, b"").unwrap();
        assert!(matches!(create_folder(&base, Some(&first), "x", 0), Err(FolderError::Taken { .. })));
        fs::remove_dir_all(base).unwrap();
    }
}

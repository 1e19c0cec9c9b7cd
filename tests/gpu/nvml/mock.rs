//! A library of our own that answers like NVML and is compiled here, and how the tests hold it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use plimsoll::gpu::fleet::Fleet;
use plimsoll::gpu::nvml::{self, NvmlCard};
use plimsoll::gpu::select::Visible;
use plimsoll::gpu::{GpuError, GpuReading, NoteCode};

/// A library with a state of its own.
pub(crate) struct Mock {
    pub(crate) dir: PathBuf,
    pub(crate) library: PathBuf,
}

/// Which symbols the library has.
#[derive(Clone, Copy)]
pub(crate) enum Age {
    Current,
    /// Without those that came with version 510 of the driver.
    Old,
}

/// Compiles the library once a process; `None`, with a line that says so, where there is no C compiler.
pub(crate) fn compiled(age: Age) -> Option<&'static Path> {
    static CURRENT: OnceLock<Option<PathBuf>> = OnceLock::new();
    static OLD: OnceLock<Option<PathBuf>> = OnceLock::new();
    let (cell, name, extra) = match age {
        Age::Current => (&CURRENT, "current", None),
        Age::Old => (&OLD, "old", Some("-DOLD")),
    };
    cell.get_or_init(|| {
        let dir = fresh_dir(&format!("compiled-{name}"));
        let library = dir.join("libmock-nvml.so");
        let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/nvml-mock/mock.c");
        let mut cc = Command::new("cc");
        cc.args(["-shared", "-fPIC", "-O1", "-o"]).arg(&library).args(extra).arg(source);
        match cc.status() {
            Ok(status) => {
                assert!(status.success(), "cc failed on tests/nvml-mock/mock.c");
                Some(library)
            }
            Err(e) => {
                eprintln!("skipped: the NVML tests need the C compiler `cc` ({e})");
                None
            }
        }
    })
    .as_deref()
}

pub(crate) fn fresh_dir(name: &str) -> PathBuf {
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("nvml-{}-{name}", std::process::id()));
    fs::create_dir_all(&dir).unwrap();
    dir
}

impl Mock {
    pub(crate) fn new(name: &str, state: &str) -> Option<Mock> {
        Mock::aged(name, state, Age::Current)
    }

    pub(crate) fn aged(name: &str, state: &str, age: Age) -> Option<Mock> {
        let compiled = compiled(age)?;
        let dir = fresh_dir(name);
        // A copy of its own: the library looks for its state beside itself.
        let library = dir.join("libmock-nvml.so");
        fs::copy(compiled, &library).unwrap();
        let mock = Mock { dir, library };
        mock.set(state);
        let _ = fs::remove_file(mock.dir.join("calls.txt"));
        Some(mock)
    }

    pub(crate) fn set(&self, state: &str) {
        fs::write(self.dir.join("state.txt"), state).unwrap();
    }

    /// How often a function was called on the device in `slot`.
    pub(crate) fn calls(&self, function: &str, slot: u32) -> usize {
        let line = format!("{function} {slot}");
        fs::read_to_string(self.dir.join("calls.txt")).unwrap_or_default().lines().filter(|l| *l == line).count()
    }

    pub(crate) fn calls_on(&self, slot: u32) -> usize {
        let end = format!(" {slot}");
        fs::read_to_string(self.dir.join("calls.txt")).unwrap_or_default().lines().filter(|l| l.ends_with(&end)).count()
    }

    pub(crate) fn load(&self) -> nvml_wrapper::Nvml {
        nvml::load(Some(&self.library)).unwrap()
    }
}

impl Drop for Mock {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.dir);
    }
}

pub(crate) fn open<'n>(nvml: &'n nvml_wrapper::Nvml, devices: &[&str]) -> Fleet<NvmlCard<'n>> {
    try_open(nvml, devices).unwrap()
}

pub(crate) fn try_open<'n>(nvml: &'n nvml_wrapper::Nvml, devices: &[&str]) -> Result<Fleet<NvmlCard<'n>>, GpuError> {
    let devices: Vec<String> = devices.iter().map(|d| (*d).to_string()).collect();
    nvml::open(nvml, &devices, &Visible::default())
}

pub(crate) fn value(reading: &GpuReading, gpu: &str, series: &str) -> Option<f64> {
    let is = |s: &&plimsoll::model::sample::Sample| {
        s.labels.name() == series && s.labels.get("gpu") == Some(gpu) && s.labels.get("mig").is_none()
    };
    reading.samples.iter().find(is).map(|s| s.value)
}

pub(crate) fn codes(reading: &GpuReading) -> Vec<NoteCode> {
    reading.notes.iter().map(|n| n.code).collect()
}

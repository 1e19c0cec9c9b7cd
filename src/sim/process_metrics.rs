//! Metrics of the process, as Python's client library makes them; the numbers are made up.

use std::time::Duration;

use super::page::Page;

/// Writes the families for a process born at `born` (unix seconds) that has lived for `age`.
pub(super) fn write(page: &mut Page, born: f64, age: Duration) {
    let generations = ["0", "1", "2"];
    for (name, help, values) in [
        ("python_gc_objects_collected_total", "Objects collected during gc", [12_354.0, 2_562.0, 583.0]),
        ("python_gc_objects_uncollectable_total", "Uncollectable objects found during GC", [0.0, 0.0, 0.0]),
        ("python_gc_collections_total", "Number of times this generation was collected", [1_452.0, 132.0, 9.0]),
    ] {
        page.family(name, help, "counter");
        for (generation, value) in generations.iter().zip(values) {
            page.sample(name, &format!("generation=\"{generation}\""), value);
        }
    }
    page.family("python_info", "Python platform information", "gauge");
    let python = "implementation=\"CPython\",major=\"3\",minor=\"12\",patchlevel=\"1\",version=\"3.12.1\"";
    page.sample("python_info", python, 1.0);
    let cpu = 17.51 + (age.as_secs_f64() * 20.0).round() / 100.0;
    for (name, help, kind, value) in [
        ("process_virtual_memory_bytes", "Virtual memory size in bytes.", "gauge", 4_743_348_224.0),
        ("process_resident_memory_bytes", "Resident memory size in bytes.", "gauge", 1_014_272_000.0),
        ("process_start_time_seconds", "Start time of the process since unix epoch in seconds.", "gauge", born - 30.0),
        ("process_cpu_seconds_total", "Total user and system CPU time spent in seconds.", "counter", cpu),
        ("process_open_fds", "Number of open file descriptors.", "gauge", 34.0),
        ("process_max_fds", "Maximum number of open file descriptors.", "gauge", 20_000.0),
    ] {
        page.family(name, help, kind);
        page.sample(name, "", value);
    }
}

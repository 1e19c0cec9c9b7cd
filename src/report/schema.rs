//! The JSON Schema of `verdict.json`, made from the types that write it.

use std::io::{self, Write};

use crate::model::verdict::Verdict;

/// Writes the schema as indented JSON with a newline at its end.
///
/// # Errors
/// If the writer fails.
pub fn write(out: &mut dyn Write) -> io::Result<()> {
    serde_json::to_writer_pretty(&mut *out, &schemars::schema_for!(Verdict))?;
    out.write_all(b"\n")
}

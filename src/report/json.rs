//! `verdict.json`: the verdict as it stands, for programs.

use std::io::{self, Write};

use crate::model::verdict::{SCHEMA, Verdict};

/// Writes the verdict as indented JSON with a newline at its end; keys in the order of the types.
///
/// # Errors
/// If the writer fails.
pub fn write(verdict: &Verdict, out: &mut dyn Write) -> io::Result<()> {
    serde_json::to_writer_pretty(&mut *out, verdict)?;
    out.write_all(b"\n")
}

/// Reads a verdict back.
///
/// # Errors
/// If the text is no verdict, or one of another version.
pub fn read(text: &str) -> Result<Verdict, ReadError> {
    #[derive(serde::Deserialize)]
    struct Version {
        schema: String,
    }
    // The version first: of another version's verdict, the first odd key is the wrong complaint.
    let found: Version = serde_json::from_str(text)?;
    if found.schema != SCHEMA {
        return Err(ReadError::Version { found: found.schema });
    }
    Ok(serde_json::from_str(text)?)
}

/// Why a verdict could not be read.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// It is not JSON, or lacks what a verdict must have.
    #[error("cannot read the verdict: {0}")]
    Json(#[from] serde_json::Error),
    /// It was written by a release that says something else by the same words.
    #[error("cannot read a verdict of version `{found}`, expected `{SCHEMA}`")]
    Version {
        /// The version that it states.
        found: String,
    },
}

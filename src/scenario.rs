//! One TOML file becomes a `Scenario`.

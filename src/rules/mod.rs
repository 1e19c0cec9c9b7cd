//! Prometheus rule files and their alerts.

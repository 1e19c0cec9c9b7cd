//! Reading pages: the poller and the exposition formats.

//! Metrics of the HTTP server itself, as the instrumentator of vLLM's framework makes them.

use super::page::{Histogram, Page};

const HIGH: &[f64] = &[
    0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1.0, 1.5, 2.0, 2.5, 3.0, 3.5, 4.0, 4.5, 5.0, 7.5, 10.0, 30.0, 60.0,
];
const LOW: &[f64] = &[0.1, 0.5, 1.0];
/// Paths that are not counted.
const EXCLUDED: &[&str] = &["/metrics", "/health", "/load", "/ping", "/version", "/server_info"];

/// One response that has ended.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Served {
    /// The route's path, `none` if no route matched.
    pub(super) handler: String,
    pub(super) method: String,
    pub(super) status: u16,
    /// Content length of the request, 0 if it has none.
    pub(super) request_bytes: usize,
    /// Content length of the response, 0 for a stream.
    pub(super) response_bytes: usize,
    pub(super) seconds: f64,
}

/// Children of the families, in the order of their birth, as the client library keeps them.
#[derive(Debug)]
pub(super) struct HttpMetrics {
    requests: Vec<((String, String, u16), u64, f64)>,
    sizes: Vec<(String, u64, [f64; 2], f64)>,
    durations: Vec<((String, String), Histogram, f64)>,
    high: Histogram,
}

impl Default for HttpMetrics {
    fn default() -> Self {
        HttpMetrics { requests: Vec::new(), sizes: Vec::new(), durations: Vec::new(), high: Histogram::new(HIGH) }
    }
}

impl HttpMetrics {
    /// Counts a response; `at` is now, in unix seconds.
    pub(super) fn observe(&mut self, served: &Served, at: f64) {
        if EXCLUDED.contains(&served.handler.as_str()) {
            return;
        }
        let key = (served.handler.clone(), served.method.clone(), served.status / 100);
        match self.requests.iter_mut().find(|(k, ..)| *k == key) {
            Some((_, count, _)) => *count += 1,
            None => self.requests.push((key, 1, at)),
        }
        let bytes = [served.request_bytes as f64, served.response_bytes as f64];
        match self.sizes.iter_mut().find(|(h, ..)| *h == served.handler) {
            Some((_, count, sums, _)) => {
                *count += 1;
                sums[0] += bytes[0];
                sums[1] += bytes[1];
            }
            None => self.sizes.push((served.handler.clone(), 1, bytes, at)),
        }
        let key = (served.handler.clone(), served.method.clone());
        let found = self.durations.iter().position(|(k, ..)| *k == key);
        let index = found.unwrap_or_else(|| {
            self.durations.push((key, Histogram::new(LOW), at));
            self.durations.len() - 1
        });
        self.durations[index].1.observe(served.seconds);
        self.high.observe(served.seconds);
    }

    /// Writes the families; `born` is when the server started, in unix seconds.
    pub(super) fn write(&self, page: &mut Page, born: f64) {
        let help = "Total number of requests by method, status and handler.";
        page.family("http_requests_total", help, "counter");
        let labels = |(handler, method, class): &(String, String, u16)| {
            format!("handler=\"{handler}\",method=\"{method}\",status=\"{class}xx\"")
        };
        for (key, count, _) in &self.requests {
            page.sample("http_requests_total", &labels(key), *count as f64);
        }
        if !self.requests.is_empty() {
            page.family("http_requests_created", help, "gauge");
            for (key, _, at) in &self.requests {
                page.sample("http_requests_created", &labels(key), *at);
            }
        }
        for (i, (which, way)) in
            [("request", "incoming requests"), ("response", "outgoing responses")].iter().enumerate()
        {
            let name = format!("http_{which}_size_bytes");
            let help = format!(
                "Content length of {way} by handler. Only value of header is respected. Otherwise ignored. No \
                 percentile calculated. "
            );
            page.family(&name, &help, "summary");
            for (handler, count, sums, _) in &self.sizes {
                let labels = format!("handler=\"{handler}\"");
                page.sample(&format!("{name}_count"), &labels, *count as f64);
                page.sample(&format!("{name}_sum"), &labels, sums[i]);
            }
            if !self.sizes.is_empty() {
                let created = format!("{name}_created");
                page.family(&created, &help, "gauge");
                for (handler, .., at) in &self.sizes {
                    page.sample(&created, &format!("handler=\"{handler}\""), *at);
                }
            }
        }
        let name = "http_request_duration_highr_seconds";
        let help =
            "Latency with many buckets but no API specific labels. Made for more accurate percentile calculations. ";
        page.family(name, help, "histogram");
        page.histogram(name, "", "", &self.high);
        page.family(&format!("{name}_created"), help, "gauge");
        page.sample(&format!("{name}_created"), "", born);
        let name = "http_request_duration_seconds";
        let help =
            "Latency with only few buckets by handler. Made to be only used if aggregation by handler is important. ";
        page.family(name, help, "histogram");
        for ((handler, method), h, _) in &self.durations {
            page.histogram(name, &format!("handler=\"{handler}\","), &format!(",method=\"{method}\""), h);
        }
        if !self.durations.is_empty() {
            page.family(&format!("{name}_created"), help, "gauge");
            for ((handler, method), _, at) in &self.durations {
                page.sample(&format!("{name}_created"), &format!("handler=\"{handler}\",method=\"{method}\""), *at);
            }
        }
    }
}

//! A measurement of training, as a line of JSON or as text.

use serde::Serialize;

use crate::device::threads_in_words;

/// One measurement.
#[derive(Serialize)]
pub struct Measurement<'a> {
    pub variant: &'a str,
    pub step: &'static str,
    pub device: &'a str,
    pub threads: usize,
    /// Number of rounds; the figures are medians over them.
    pub rounds: usize,
    pub ms_per_update: f64,
    pub tokens_per_s: f64,
    pub tokens_per_update: f64,
    /// On the CPU: share of the time spent in matrix products, their rate, and the rate of one large product as an
    /// upper limit.
    pub product_share: Option<f64>,
    pub product_gflops: Option<f64>,
    pub product_peak_gflops: Option<f64>,
    /// Floating-point operations of the products of one update, in units of 10¹².
    pub tflop_per_update: f64,
    /// Peak of the memory in use, in GiB: parameters, gradients, moments and activations.
    pub peak_memory_gib: f64,
    /// Memory held, in GiB: in use or free for reuse, including that of earlier variants.
    pub memory_gib: f64,
    pub peer_tokens_per_s: Option<f64>,
    pub peer_peak_memory_gib: Option<f64>,
    /// Median over the rounds of our rate divided by the peer's.
    pub ratio_to_peer: Option<f64>,
    /// Rate of our best round divided by that of the peer's best: least affected by other load on the machine.
    pub ratio_of_best: Option<f64>,
}

/// Bytes in GiB.
pub fn gib(bytes: usize) -> f64 {
    bytes as f64 / (1u64 << 30) as f64
}

/// Prints one measurement; `tokens` is the name of the unit.
pub fn report(m: &Measurement<'_>, tokens: &str, json: bool) {
    if json {
        println!("{}", serde_json::to_string(m).expect("measurements can be written as JSON"));
        return;
    }
    let threads = match m.device {
        "cpu" => format!(", {}", threads_in_words(m.threads)),
        _ => String::new(),
    };
    println!(
        "{} {} step, {}{threads}: {:.2} ms/update, {:.0} {tokens}/s ({:.0} tokens/update); \
         {:.2} TFLOP/update in products, {:.1} TFLOP/s",
        m.variant,
        m.step,
        m.device,
        m.ms_per_update,
        m.tokens_per_s,
        m.tokens_per_update,
        m.tflop_per_update,
        1e3 * m.tflop_per_update / m.ms_per_update,
    );
    if let (Some(share), Some(rate), Some(peak)) = (m.product_share, m.product_gflops, m.product_peak_gflops)
    {
        println!(
            "  products {:.0} % of the time at {rate:.0} GFLOP/s (one large product: {peak:.0})",
            100.0 * share
        );
    }
    println!("  memory: {:.2} GiB in use at the peak, {:.2} GiB held", m.peak_memory_gib, m.memory_gib);
    if let (Some(peer), Some(ratio)) = (m.peer_tokens_per_s, m.ratio_to_peer) {
        let best = m.ratio_of_best.unwrap_or(f64::NAN);
        let memory = m.peer_peak_memory_gib.map(|peak| format!(", {peak:.2} GiB in use at the peak"));
        println!(
            "  peer: {peer:.0} {tokens}/s{}; ratio {ratio:.2} (median of {} rounds), {best:.2} (best rounds)",
            memory.unwrap_or_default(),
            m.rounds
        );
    }
}

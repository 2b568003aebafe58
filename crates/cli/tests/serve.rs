//! `mae serve` as a process: signals, clients that others wrote, and the page in a browser.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;

use mae_data::Vocab;
use mae_engine::Device;
use mae_model::config::{Mixture, System};
use mae_model::folder::ModelFolder;
use mae_model::lm::{LmConfig, LmFolder};
use mae_model::{LanguageModel, ModelConfig, Translator};

use crate::common::Sandbox;
use crate::common::tool::{check, python};

fn vocab(words: &str) -> Arc<Vocab> {
    Arc::new(Vocab::from_counts(words.split(' ').map(|word| (word, 1)), Default::default()))
}

/// The models `de-en` (a mixture), `base-de-en` and `lm`, with random weights.
fn models() -> Sandbox {
    let place = Sandbox::new();
    for (name, system, seed) in [("de-en", System::MAE, 3), ("base-de-en", System::BASE, 4)] {
        let mut config = ModelConfig::arch("transformer_tiny").unwrap();
        (config.encoder_layers, config.decoder_layers) = (2, 2);
        (config.encoder_embed_dim, config.encoder_ffn_embed_dim) = (16, 20);
        (config.encoder_attention_heads, config.max_positions) = (4, 64);
        config.mixture = Mixture { system, gate_hidden: 6, ..Mixture::default() };
        let (source, target) =
            (vocab("das haus ist alt und der garten schön"), vocab("the house is old and garden a"));
        let model = Translator::new(&config, [source.len(), target.len()], &Device::cpu(), seed).unwrap();
        ModelFolder { model, source, target, codes: None, text: Default::default() }
            .save(&place.path(name))
            .unwrap();
    }
    let mut config = LmConfig::arch("transformer_lm_tiny").unwrap();
    (config.decoder_layers, config.adaptive_softmax_cutoff, config.max_positions) = (1, vec![], 600);
    (config.decoder_embed_dim, config.decoder_ffn_embed_dim, config.decoder_attention_heads) = (16, 20, 4);
    let dictionary = vocab("the history of words is long");
    let model = LanguageModel::new(&config, dictionary.len(), &Device::cpu(), 5).unwrap();
    LmFolder { model, dictionary, codes: None }.save(&place.path("lm")).unwrap();
    place
}

/// A server process.
struct Served {
    process: Child,
    url: String,
}

impl Served {
    fn start(place: &Sandbox, more: &[&str]) -> Self {
        let mut process = Command::new(env!("CARGO_BIN_EXE_mae"))
            .args([
                "serve",
                "de-en",
                "base-de-en",
                "lm",
                "--device",
                "cpu",
                "--max-len-b",
                "9",
                "--log",
                "log.jsonl",
            ])
            .args(more)
            .current_dir(place.path(""))
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the program starts");
        let mut url = String::new();
        BufReader::new(process.stdout.take().expect("a pipe")).read_line(&mut url).expect("its address");
        Self { process, url: url.trim().to_owned() }
    }

    /// Status and body of an answer.
    fn ask(&self, method: &str, path: &str, body: &str) -> (u16, String) {
        let mut stream = TcpStream::connect(self.url.trim_start_matches("http://")).unwrap();
        let kind = "application/x-www-form-urlencoded";
        write!(
            stream,
            "{method} {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Type: {kind}\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        )
        .unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let status = answer.split_whitespace().nth(1).unwrap_or("0").parse().unwrap();
        (status, answer.split_once("\r\n\r\n").map_or(String::new(), |(_, body)| body.to_owned()))
    }

    /// Sentences that the model `de-en` has finished.
    fn finished(&self) -> u64 {
        let (_, text) = self.ask("GET", "/metrics", "");
        let name = "mae_sentences_total{model=\"de-en\"} ";
        let line = text.lines().find_map(|line| line.strip_prefix(name));
        line.and_then(|value| value.parse().ok()).unwrap_or(0)
    }

    fn signal(&self, name: &str) {
        let sent = Command::new("kill").args([name, &self.process.id().to_string()]).status().unwrap();
        assert!(sent.success());
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        // It may have ended already.
        self.process.kill().ok();
        self.process.wait().ok();
    }
}

const ASKED: &str = "q=das+haus&source=de&target=en";

#[test]
fn signals_load_again_and_end() {
    let place = models();
    let mut served = Served::start(&place, &["--port", "0"]);
    let (status, before) = served.ask("POST", "/translate", ASKED);
    assert_eq!(status, 200, "{before}");
    served.signal("-HUP");
    while !served.ask("GET", "/metrics", "").1.contains("mae_reloads_total 1") {}
    assert_eq!(served.ask("POST", "/translate", ASKED).1, before);
    served.signal("-TERM");
    assert_eq!(served.process.wait().unwrap().code(), Some(0));
    let log = std::fs::read_to_string(place.path("log.jsonl")).unwrap();
    for line in log.lines() {
        serde_json::from_str::<serde_json::Value>(line).unwrap();
    }
    assert!(log.contains("\"reloaded\"") && !log.contains("das haus"), "{log}");

    // A killed server leaves nothing behind that the next one minds.
    let served = Served::start(&place, &["--port", "0"]);
    let port = served.url.rsplit(':').next().unwrap().to_owned();
    served.signal("-KILL");
    drop(served);
    let served = Served::start(&place, &["--port", &port]);
    assert_eq!(served.ask("POST", "/translate", ASKED), (200, before));
}

#[test]
fn a_server_that_is_killed_under_load_loses_what_it_had_and_no_more() {
    let place = models();
    let mut served = Served::start(&place, &["--port", "0"]);
    let address = served.url.trim_start_matches("http://").to_owned();
    place.write("lines", "das haus\nder garten ist schön\ndas haus ist alt\n");
    let run = std::thread::scope(|scope| {
        let load = scope.spawn(|| {
            let args = ["bench", "serve", "--server", &address, "--pair", "de-en", "--source", "lines"];
            place.mae(&args, &["--json", "--rates", "200", "--seconds", "3", "--connections", "20"])
        });
        while served.finished() < 50 {}
        served.signal("-KILL");
        served.process.wait().unwrap();
        std::thread::sleep(std::time::Duration::from_millis(300));
        let port = address.rsplit(':').next().unwrap();
        served = Served::start(&place, &["--port", port]);
        load.join().unwrap()
    });
    let row: serde_json::Value = serde_json::from_str(run.succeeded()).unwrap();
    let count = |key: &str| row[key].as_u64().unwrap();
    let ended = ["answered", "refused", "failed", "lost", "unsent"].map(count);
    assert_eq!(ended.iter().sum::<u64>(), count("due"), "{row}");
    // Nobody listened for a while; what was in work is lost, and its clients see that the connection broke.
    assert!(count("unsent") > 0 && count("lost") <= 20, "{row}");
    assert_eq!((count("refused"), count("failed"), count("surplus")), (0, 0, 0), "{row}");
    assert!(served.finished() > 50 && count("answered") > 100, "{row}");
}

#[test]
fn mistakes_are_said() {
    let place = models();
    std::fs::rename(place.path("de-en"), place.path("mae")).unwrap();
    let start = |args: &[&str]| place.mae(&["serve", "--device", "cpu", "--port", "0"], args);
    assert!(start(&["mae"]).failed().contains("de-en=FOLDER"));
    assert!(start(&["de-en=nowhere"]).failed().contains("nowhere is not a model folder"));
    assert!(start(&["de-en=mae", "de-en=base-de-en"]).failed().contains("two models are named de-en"));
    assert!(start(&["eo-en=mae", "--moses"]).failed().contains("no rules to tokenise eo"));
    assert!(start(&["de-en=mae", "--api-keys", "none"]).failed().contains("none: cannot read the keys"));
    assert!(start(&["de-en=mae", "--beam", "0"]).failed().contains("beam = 0"));
    for flag in ["--max-queue", "--timeout"] {
        assert!(start(&["de-en=mae", flag, "0"]).failed().contains(&format!("{flag} 0: nothing")));
    }
    assert!(start(&["de-en=mae", "--host", "my.host"]).failed().contains("expected the IP address"));
    assert!(start(&["de-en=mae", "--max-wait=-1"]).failed().contains("--max-wait"));
    assert!(start(&["de-en=mae", "--log", "no/folder/log"]).failed().contains("no/folder/log"));
    let served = Served::start(&models(), &["--port", "0"]);
    let port = served.url.rsplit(':').next().unwrap();
    let taken = place.mae(&["serve", "de-en=mae", "--device", "cpu", "--port"], &[port]);
    let said = taken.failed();
    assert!(said.contains("cannot listen to 127.0.0.1") && said.contains("choose another address"), "{said}");
}

#[test]
fn a_limit_of_0_is_none_and_sizes_do_not_overflow() {
    let place = models();
    let most = (usize::MAX >> 9).to_string();
    let limits = ["--char-limit", "0", "--batch-limit", "0", "--req-limit", "0", "--max-body", &most];
    let served = Served::start(&place, &[&["--port", "0", "--host", "localhost"][..], &limits].concat());
    let (status, answer) = served.ask("POST", "/translate?q=das+haus&source=de&target=en", "");
    assert_eq!(status, 200, "{answer}");
}

#[test]
fn a_name_that_contradicts_its_folder_is_said() {
    let place = models();
    place.write("de-en/text.json", r#"{"format": 1, "source_lang": "en", "target_lang": "de"}"#);
    let mut served = Served::start(&place, &["--port", "0", "de-en-2=de-en"]);
    let mut said = String::new();
    BufReader::new(served.process.stderr.take().unwrap()).read_line(&mut said).unwrap();
    assert!(said.contains("de-en-2: its folder has a model from en to de"), "{said}");
}

#[test]
fn a_public_address_without_keys_is_said() {
    let place = models();
    let mut served = Served::start(&place, &["--port", "0", "--host", "0.0.0.0"]);
    let mut said = String::new();
    BufReader::new(served.process.stderr.take().unwrap()).read_line(&mut said).unwrap();
    assert!(said.contains("--api-keys"), "{said}");
}

#[test]
fn load_is_measured() {
    let place = models();
    let served = Served::start(&place, &["--port", "0"]);
    place.write("lines", "das haus\nder garten ist schön\n\n");
    let address = served.url.trim_start_matches("http://");
    let args = ["bench", "serve", "--server", address, "--pair", "de-en", "--source", "lines", "--json"];
    let run = place.mae(&args, &["--rates", "20,40", "--seconds", "1"]);
    let rows: Vec<serde_json::Value> =
        run.succeeded().lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(rows.len(), 2);
    for row in rows {
        assert!(row["due"].as_u64().unwrap() > 3 && row["answered"] == row["due"], "{row}");
        assert!(row["p50_ms"].as_f64().unwrap() <= row["p99_ms"].as_f64().unwrap());
    }
    drop(served);
    let refused =
        place.mae(&["bench", "serve", "--server", "127.0.0.1:9", "--pair", "de-en"], &["--source", "lines"]);
    assert!(refused.failed().contains("no server answers at 127.0.0.1:9"));
}

#[test]
fn the_page_is_used_in_a_browser() {
    let place = models();
    let served = Served::start(&place, &["--port", "0"]);
    check(
        "node",
        ("check_server_page.js", "MAE_CHECK_PAGES"),
        &[&served.url, "das haus ist alt"],
        "the page is in order",
    );
}

#[test]
fn clients_of_others_are_served() {
    let place = models();
    let served = Served::start(&place, &["--port", "0"]);
    let args = [&served.url, "--text", "Das Haus ist alt und der Garten ist schön", "--lm", "lm"];
    check(&python(), ("check_clients.py", "MAE_CHECK_CLIENTS"), &args, "4 clients are content");
}

//! A server with tiny random models, and a client that writes HTTP by hand.
#![allow(dead_code, reason = "not every test uses all of it")]

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use mae::Device;
use mae::data::Vocab;
use mae::data::vocab::VocabOptions;
use mae::model::config::Mixture;
use mae::model::folder::ModelFolder;
use mae::model::lm::LmFolder;
use mae::model::{LmConfig, ModelConfig, System};
use mae_serve::server::Control;
use mae_serve::{Config, ModelSource, Server};
use serde_json::Value;

fn vocab(words: &[&str]) -> Arc<Vocab> {
    Arc::new(Vocab::from_counts(words.iter().map(|word| (*word, 1)), VocabOptions::default()))
}

/// Writes a translation model from the words `a b c d` to others.
pub fn save_translator(folder: &Path, system: System, seed: u64) {
    let mut config = ModelConfig::arch("transformer_tiny").unwrap();
    (config.encoder_layers, config.decoder_layers) = (1, 2);
    (config.encoder_embed_dim, config.encoder_ffn_embed_dim) = (16, 20);
    (config.encoder_attention_heads, config.max_positions) = (4, 24);
    config.mixture = Mixture { system, gate_hidden: 6, ..Mixture::default() };
    let (source, target) = (vocab(&["a", "b", "c", "d", "."]), vocab(&["x", "y", "z", "u", "v"]));
    let types = [source.len(), target.len()];
    let model = mae::model::Translator::new(&config, types, Device::cpu().engine(), seed).unwrap();
    ModelFolder { model, source, target, codes: None, text: Default::default() }.save(folder).unwrap();
}

/// Writes a language model over a few words.
pub fn save_writer(folder: &Path) {
    let dictionary = vocab(&["the", "history", "of", "words", "is", "long"]);
    let mut config = LmConfig::arch("transformer_lm_tiny").unwrap();
    (config.decoder_layers, config.adaptive_softmax_cutoff) = (1, vec![]);
    (config.decoder_embed_dim, config.decoder_ffn_embed_dim) = (16, 20);
    (config.decoder_attention_heads, config.max_positions) = (4, 64);
    let model = mae::model::LanguageModel::new(&config, dictionary.len(), Device::cpu().engine(), 5).unwrap();
    LmFolder { model, dictionary, codes: None }.save(folder).unwrap();
}

/// Bytes that a log wrote.
#[derive(Clone, Default)]
pub struct Written(Arc<Mutex<Vec<u8>>>);

impl Write for Written {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl Written {
    pub fn text(&self) -> String {
        String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
    }
}

/// A server that runs until it is dropped.
pub struct Running {
    pub address: SocketAddr,
    pub control: Arc<Control>,
    pub log: Written,
    pub place: tempfile::TempDir,
    thread: Option<JoinHandle<()>>,
}

impl Running {
    /// A server of the models `de-en` (a mixture), `base-de-en` and `lm`.
    pub fn start(change: impl FnOnce(&mut Config)) -> Self {
        let place = tempfile::tempdir().unwrap();
        let path = |name: &str| -> PathBuf { place.path().join(name) };
        save_translator(&path("de-en"), System::MAE, 3);
        save_translator(&path("base-de-en"), System::BASE, 4);
        save_writer(&path("lm"));
        let models = ["de-en", "base-de-en", "lm"].map(|name| path(name).display().to_string());
        let models: Vec<ModelSource> = models.iter().map(|model| model.parse().unwrap()).collect();
        let mut config = Config::new(models);
        config.address.set_port(0);
        config.search.max_len_b = 9;
        config.formatting = mae_serve::Formatting::Model;
        change(&mut config);
        let log = Written::default();
        let server = Server::new(config, &Device::cpu(), Box::new(log.clone())).unwrap().listen().unwrap();
        let (address, control) = (server.address(), server.control());
        let thread = std::thread::spawn(move || server.run().unwrap());
        Self { address, control, log, place, thread: Some(thread) }
    }

    /// Stops the server and waits for its end.
    pub fn stop(mut self) -> Written {
        self.end();
        self.log.clone()
    }

    fn end(&mut self) {
        self.control.stop();
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap();
        }
    }

    pub fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(self.address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(120))).unwrap();
        stream
    }

    /// A request with a body of a type; the answer.
    pub fn send(&self, method: &str, path: &str, kind: &str, body: impl AsRef<[u8]>) -> Answer {
        let body = body.as_ref();
        let head = format!(
            "{method} {path} HTTP/1.1\r\nHost: test\r\nConnection: close\r\nContent-Type: {kind}\r\nContent-Length: {}\r\n\r\n",
            body.len()
        );
        self.raw(&[head.as_bytes(), body].concat())
    }

    pub fn get(&self, path: &str) -> Answer {
        self.send("GET", path, "text/plain", "")
    }

    pub fn post(&self, path: &str, body: &Value) -> Answer {
        self.send("POST", path, "application/json", body.to_string())
    }

    /// The answer to some bytes, read to the end of the connection.
    pub fn raw(&self, bytes: &[u8]) -> Answer {
        let mut stream = self.connect();
        // A server that refuses early may close before all is written.
        stream.write_all(bytes).ok();
        Answer::read(&mut stream)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.end();
    }
}

/// An answer.
#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    pub head: String,
    pub body: String,
}

impl Answer {
    pub fn read(stream: &mut TcpStream) -> Self {
        let mut bytes = Vec::new();
        stream.read_to_end(&mut bytes).ok();
        let text = String::from_utf8_lossy(&bytes).into_owned();
        let (head, body) = text.split_once("\r\n\r\n").unwrap_or((&text, ""));
        let status = head.split_whitespace().nth(1).and_then(|code| code.parse().ok()).unwrap_or(0);
        Self { status, head: head.to_lowercase(), body: body.to_owned() }
    }

    pub fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// Status and message of a refusal.
    pub fn refusal(&self) -> (u16, String) {
        (self.status, self.json()["error"].as_str().unwrap_or_default().to_owned())
    }
}

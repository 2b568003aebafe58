//! `mae serve`: models behind the HTTP interfaces that clients know.

use std::io::{IsTerminal, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, ensure};
use mae_serve::{
    Access, Batching, Budget, Config, Formatting, Limits, LogTexts, ModelSource, OtherLanguages, Preparation,
    Proxy, SearchOptions, Server,
};

use crate::device::InferenceArgs;
use crate::exit::ExitCode;
use crate::model_arg::model_in;

const EXAMPLES: &str = "\
Examples:
  Serve a model to this machine, at http://127.0.0.1:5000:
    mae serve runs/mae7/checkpoint_best

  Ask it:
    curl http://127.0.0.1:5000/translate -d q='Guten Morgen' -d source=de \\
        -d target=en

  Serve two directions and a language model:
    mae serve runs/de-en/checkpoint_best runs/en-de/checkpoint_best \\
        lm=runs/lm/checkpoint_best

  Serve others, who need keys and may ask 80 times a minute:
    mae serve de-en=MODEL --host 0.0.0.0 --api-keys keys.txt --req-limit 80

The interfaces, limits and operation are described in docs/serving.md.";

/// Serve models over HTTP, with the interfaces of LibreTranslate, OpenNMT-py and OpenAI, and a page.
///
/// Requests that arrive while others are computed are computed together. SIGTERM finishes what has begun and ends;
/// SIGHUP loads models and keys again.
#[derive(clap::Args)]
#[command(after_long_help = EXAMPLES)]
pub struct Args {
    /// Model folders, each FOLDER or NAME=FOLDER. A name such as de-en tells a translation model's languages; without
    /// one, the folder does, or its name or that of its run
    #[arg(required = true, value_name = "MODEL")]
    models: Vec<ModelSource>,
    /// Address to listen on; others than this machine can reach 0.0.0.0
    #[arg(long, default_value = "127.0.0.1", value_name = "ADDRESS", value_parser = host)]
    host: IpAddr,
    /// Port to listen on; 0 chooses a free one
    #[arg(long, default_value_t = 5000)]
    port: u16,
    /// File with API keys, one per line, each with its requests per minute if they differ from --req-limit
    #[arg(long, value_name = "FILE")]
    api_keys: Option<PathBuf>,
    /// Requests per minute of a key or an address; 0: no limit
    #[arg(long, default_value_t = 0, value_name = "N")]
    req_limit: u32,
    /// Take clients' addresses from X-Forwarded-For, which the proxy in front of the server writes
    #[arg(long)]
    behind_proxy: bool,
    /// Moment at which sentences join others: at the next step (joining), or at the end of the batch in work (waiting)
    #[arg(long, default_value = "joining", value_name = "WHEN")]
    batching: BatchingArg,
    /// Hypotheses kept per sentence
    #[arg(long, default_value_t = SearchOptions::default().beam)]
    beam: usize,
    /// Exponent of the length in scores
    #[arg(long, default_value_t = SearchOptions::default().lenpen)]
    lenpen: f32,
    /// Longest translation of a source of n tokens: A·n + B tokens
    #[arg(long, default_value_t = SearchOptions::default().max_len_a, value_name = "A")]
    max_len_a: f32,
    /// See --max-len-a
    #[arg(long, default_value_t = SearchOptions::default().max_len_b, value_name = "B")]
    max_len_b: usize,
    /// Normalise and tokenise text with the rules of Moses before a model reads it, and detokenise translations, in place
    /// of the rules of the model folders; for folders that have none
    #[arg(long, conflicts_with = "tokenized")]
    moses: bool,
    /// Do not apply the rules of the model folders (tokeniser, lower case): texts are tokenised already
    #[arg(long)]
    tokenized: bool,
    /// Leave case and final punctuation as the model writes them; LibreTranslate copies those of the source
    #[arg(long)]
    no_formatting: bool,
    #[command(flatten)]
    limits: LimitArgs,
    /// File that the log is appended to, in place of standard error
    #[arg(long, value_name = "FILE")]
    log: Option<PathBuf>,
    /// Write texts and translations to the log
    #[arg(long)]
    log_texts: bool,
    #[command(flatten)]
    device: InferenceArgs,
}

#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum BatchingArg {
    Joining,
    Waiting,
}

/// Limits of requests and connections.
#[derive(clap::Args)]
struct LimitArgs {
    /// Characters of each text; 0: no limit
    #[arg(long, default_value_t = 0, value_name = "N")]
    char_limit: usize,
    /// Texts of a request; 0: no limit
    #[arg(long, default_value_t = 0, value_name = "N")]
    batch_limit: usize,
    /// Alternatives of a translation
    #[arg(long, default_value_t = Limits::default().alternatives, value_name = "N")]
    alternatives_limit: usize,
    /// KiB of a request's body
    #[arg(long, default_value_t = Limits::default().body >> 10, value_name = "KIB")]
    max_body: usize,
    /// Sentences that may wait for a model; more are answered with status 503
    #[arg(long, default_value_t = Limits::default().queue, value_name = "N")]
    max_queue: usize,
    /// Seconds that others' sentences may be expected to delay a request; a longer wait is answered with status 503 at
    /// once
    #[arg(long, default_value_t = Limits::default().wait.as_secs_f64(), value_name = "SECONDS")]
    max_wait: f64,
    /// Sentences that a model has in work at once
    #[arg(long, default_value_t = Limits::default().budget.sentences, value_name = "N")]
    batch_sentences: usize,
    /// Source tokens that a model has in work at once
    #[arg(long, default_value_t = Limits::default().budget.tokens, value_name = "N")]
    batch_tokens: usize,
    /// Connections at once
    #[arg(long, default_value_t = Limits::default().connections, value_name = "N")]
    max_connections: usize,
    /// Seconds until a request must be answered
    #[arg(long, default_value_t = Limits::default().answer.as_secs(), value_name = "SECONDS")]
    timeout: u64,
    /// Seconds that requests have to finish when the server is stopped
    #[arg(long, default_value_t = Limits::default().drain.as_secs(), value_name = "SECONDS")]
    drain: u64,
}

impl LimitArgs {
    fn limits(&self) -> anyhow::Result<Limits> {
        for (value, flag) in [
            (self.max_body, "--max-body"),
            (self.max_queue, "--max-queue"),
            (self.batch_sentences, "--batch-sentences"),
            (self.batch_tokens, "--batch-tokens"),
            (self.max_connections, "--max-connections"),
            (self.timeout as usize, "--timeout"),
        ] {
            ensure!(value > 0, "{flag} 0: nothing could be served");
        }
        let wait = Duration::try_from_secs_f64(self.max_wait)
            .with_context(|| format!("--max-wait {}: this is no time", self.max_wait))?;
        Ok(Limits {
            body: self.max_body.saturating_mul(1 << 10),
            characters: (self.char_limit > 0).then_some(self.char_limit),
            batch: (self.batch_limit > 0).then_some(self.batch_limit),
            alternatives: self.alternatives_limit,
            queue: self.max_queue,
            wait,
            budget: Budget { sentences: self.batch_sentences, tokens: self.batch_tokens },
            connections: self.max_connections,
            answer: Duration::from_secs(self.timeout),
            drain: Duration::from_secs(self.drain),
            ..Limits::default()
        })
    }
}

/// Runs the command.
pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    let search = SearchOptions {
        beam: args.beam,
        lenpen: args.lenpen,
        max_len_a: args.max_len_a,
        max_len_b: args.max_len_b,
        ..SearchOptions::default()
    };
    search.check()?;
    let in_run = |source: ModelSource| ModelSource { folder: model_in(&source.folder), ..source };
    let models = args.models.into_iter().map(in_run).collect();
    let proxy = if args.behind_proxy { Proxy::Trusted } else { Proxy::None };
    let config = Config {
        address: SocketAddr::new(args.host, args.port),
        search,
        batching: match args.batching {
            BatchingArg::Joining => Batching::Joining,
            BatchingArg::Waiting => Batching::Waiting,
        },
        limits: args.limits.limits()?,
        access: Access {
            keys: args.api_keys,
            per_minute: (args.req_limit > 0).then_some(args.req_limit),
            proxy,
        },
        preparation: match (args.moses, args.tokenized) {
            (true, _) => Preparation::Moses,
            (false, true) => Preparation::Tokenised,
            (false, false) => Preparation::Folder,
        },
        formatting: if args.no_formatting { Formatting::Model } else { Formatting::LikeSource },
        log_texts: if args.log_texts { LogTexts::Written } else { LogTexts::Omitted },
        ..Config::new(models)
    };
    let log: Box<dyn Write + Send> = match &args.log {
        None => Box::new(std::io::stderr()),
        Some(path) => {
            let file = std::fs::OpenOptions::new().create(true).append(true).open(path);
            Box::new(file.with_context(|| format!("cannot write the log {}", path.display()))?)
        }
    };
    let device = args.device.device()?.into();
    let server = Server::new(config, &device, log)?.listen()?;
    if server.is_open_to_all() {
        warn("everybody who reaches this address can use the models: no API keys are asked for (--api-keys)");
    }
    for OtherLanguages { name, served, folder } in server.other_languages() {
        warn(&format!(
            "{name}: its folder has a model from {} to {}; by its name it is asked to translate from {} to {}",
            folder[0], folder[1], served[0], served[1]
        ));
    }
    for (name, rules) in server.rules() {
        eprintln!(
            "mae: {name}: texts go through the rules of its folder ({rules}); --tokenized leaves this out"
        );
    }
    println!("http://{}", server.address());
    server.run()?;
    Ok(ExitCode::SUCCESS)
}

/// Reads an address.
fn host(text: &str) -> Result<IpAddr, &'static str> {
    match text {
        "localhost" => Ok(IpAddr::V4(Ipv4Addr::LOCALHOST)),
        _ => text.parse().map_err(|_| {
            "expected the IP address of a network interface, such as 127.0.0.1 (this machine alone) or 0.0.0.0 (all)"
        }),
    }
}

/// Prints a warning, in red on a terminal.
fn warn(text: &str) {
    if std::io::stderr().is_terminal() {
        eprintln!("\u{1b}[1;31mmae: {text}\u{1b}[0m");
    } else {
        eprintln!("mae: {text}");
    }
}

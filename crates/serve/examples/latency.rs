//! Latency of one client that waits for each answer, beside the search alone:
//!
//!     cargo run --release -p mae-serve --example latency -- MODEL TEXT [ROUNDS]
//!
//! Both translate the lines of TEXT one at a time, in turns; medians in milliseconds are printed, and those of `/health`,
//! which is HTTP alone.

use std::error::Error;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Instant;

use mae::{Device, TranslateOptions, Translator};
use mae_serve::{Config, Server};

type Failure = Box<dyn Error + Send + Sync>;

fn main() -> Result<(), Failure> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    if args.is_empty() {
        println!("usage: latency MODEL TEXT [ROUNDS]");
        return Ok(());
    }
    let [model, text, rest @ ..] = &args[..] else { return Err("the model, and a text to translate".into()) };
    let rounds: usize = rest.first().map_or(Ok(5), |rounds| rounds.parse())?;
    let text = std::fs::read_to_string(text)?;
    let lines: Vec<&str> = text.lines().take(300).collect();

    let mut config = Config::new(vec![model.parse()?]);
    config.address.set_port(0);
    let server = Server::new(config, &Device::cpu(), Box::new(std::io::sink()))?.listen()?;
    let (address, control) = (server.address(), server.control());
    let serving = std::thread::spawn(move || server.run());
    let translator = Translator::load(model, &Device::cpu())?;
    let [source, target] =
        translator.text_record().languages.clone().ok_or("the model tells no languages")?;
    let pool = rayon::ThreadPoolBuilder::new().build()?;

    for round in 1..=rounds {
        let options = TranslateOptions::default();
        let alone = pool.install(|| median(&lines, |line| Ok(translator.translate(&[line], &options)?)))?;
        let mut client = Client::connect(address)?;
        let ask = |line: &&str| {
            let body = format!("{{\"q\":\"{line}\",\"source\":\"{source}\",\"target\":\"{target}\"}}");
            client.ask("POST /translate", &body)
        };
        let served = median(&lines, ask)?;
        let http = median(&lines, |_| client.ask("GET /health", ""))?;
        println!(
            "round {round}: search {alone:.3} ms, served {served:.3} ms ({:.2} times), /health {http:.3} ms",
            served / alone
        );
    }
    control.stop();
    serving.join().map_err(|_| "the server panicked")??;
    Ok(())
}

/// Median time of a call in milliseconds, after some that do not count.
fn median<'a, T>(
    lines: &'a [&str],
    mut call: impl FnMut(&&'a str) -> Result<T, Failure>,
) -> Result<f64, Failure> {
    for line in lines.iter().take(20) {
        call(line)?;
    }
    let mut times = Vec::with_capacity(lines.len());
    for line in lines {
        let begun = Instant::now();
        call(line)?;
        times.push(1e3 * begun.elapsed().as_secs_f64());
    }
    times.sort_by(f64::total_cmp);
    times.get(times.len() / 2).copied().ok_or_else(|| "no lines".into())
}

/// A client that keeps its connection.
struct Client {
    stream: BufReader<TcpStream>,
}

impl Client {
    fn connect(address: SocketAddr) -> std::io::Result<Self> {
        let stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        Ok(Self { stream: BufReader::new(stream) })
    }

    fn ask(&mut self, what: &str, body: &str) -> Result<(), Failure> {
        let head = "HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json";
        let request = format!("{what} {head}\r\ncontent-length: {}\r\n\r\n{body}", body.len());
        self.stream.get_mut().write_all(request.as_bytes())?;
        let (mut line, mut length, mut status) = (String::new(), 0, String::new());
        loop {
            line.clear();
            if self.stream.read_line(&mut line)? == 0 {
                return Err("the server closed the connection".into());
            }
            if status.is_empty() {
                status.clone_from(&line);
            }
            if let Some((name, value)) = line.split_once(':')
                && name.eq_ignore_ascii_case("content-length")
            {
                length = value.trim().parse()?;
            }
            if line == "\r\n" {
                break;
            }
        }
        let mut answer = vec![0; length];
        self.stream.read_exact(&mut answer)?;
        if !status.contains(" 200 ") {
            return Err(format!("{status} {}", String::from_utf8_lossy(&answer)).into());
        }
        Ok(())
    }
}

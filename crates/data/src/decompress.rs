//! Opens plain and compressed text files; the first bytes decide, not the name.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;

use flate2::bufread::MultiGzDecoder;
use ruzstd::decoding::errors::{FrameDecoderError, ReadFrameHeaderError};
use ruzstd::decoding::{BlockDecodingStrategy, FrameDecoder};

use crate::error::{Error, Result};

const BUFFER: usize = 1 << 16;
const GZIP_MAGIC: &[u8] = &[0x1f, 0x8b];
const ZSTD_MAGIC: &[u8] = &[0x28, 0xb5, 0x2f, 0xfd];

/// Opens `path` for streaming; gzip (any number of members) and zstd (any number of frames) are decoded on the way.
///
/// The name is consulted only when the file is too short for a magic number: an empty `.gz` is an error, not
/// an empty text: an interrupted compressor leaves such a file behind.
pub(crate) fn open(path: &Path) -> Result<Box<dyn BufRead + Send>> {
    let file = File::open(path).map_err(Error::io("open", path))?;
    let mut file = BufReader::with_capacity(BUFFER, file);
    let head = file.fill_buf().map_err(Error::io("read", path))?;
    let extension = path.extension().and_then(|e| e.to_str()).unwrap_or_default();
    let short = |magic: &[u8], name: &str| head.len() < magic.len() && extension == name;
    if head.starts_with(GZIP_MAGIC) || short(GZIP_MAGIC, "gz") {
        Ok(Box::new(BufReader::with_capacity(BUFFER, MultiGzDecoder::new(file))))
    } else if head.starts_with(ZSTD_MAGIC) || is_skippable(head) || short(ZSTD_MAGIC, "zst") {
        Ok(Box::new(BufReader::with_capacity(BUFFER, ZstdFrames::new(file))))
    } else {
        Ok(Box::new(file))
    }
}

/// Decodes a stream inside another file; only its first bytes tell what it is.
pub(crate) fn decode<'a>(source: Box<dyn Read + 'a>) -> io::Result<Box<dyn Read + 'a>> {
    let mut source = BufReader::with_capacity(BUFFER, source);
    let head = source.fill_buf()?;
    Ok(if head.starts_with(GZIP_MAGIC) {
        Box::new(MultiGzDecoder::new(source))
    } else if head.starts_with(ZSTD_MAGIC) || is_skippable(head) {
        Box::new(ZstdFrames::new(source))
    } else {
        Box::new(source)
    })
}

/// zstd's skippable frames start with 0x184D2A5? (little endian).
fn is_skippable(head: &[u8]) -> bool {
    matches!(head, [0x50..=0x5f, 0x2a, 0x4d, 0x18, ..])
}

/// All frames of a zstd stream one after the other (a `ruzstd` decoder stops at the end of its frame).
struct ZstdFrames<R: BufRead> {
    source: R,
    decoder: FrameDecoder,
    inside: bool,
    any: bool,
}

impl<R: BufRead> ZstdFrames<R> {
    fn new(source: R) -> Self {
        Self { source, decoder: FrameDecoder::new(), inside: false, any: false }
    }

    /// Reads the next frame's header; false at the end of the file.
    fn next_frame(&mut self) -> io::Result<bool> {
        loop {
            if self.any && self.source.fill_buf()?.is_empty() {
                return Ok(false);
            }
            match self.decoder.reset(&mut self.source) {
                Ok(()) => {
                    (self.inside, self.any) = (true, true);
                    return Ok(true);
                }
                Err(FrameDecoderError::ReadFrameHeaderError(ReadFrameHeaderError::SkipFrame {
                    length,
                    ..
                })) => {
                    io::copy(&mut self.source.by_ref().take(u64::from(length)), &mut io::sink())?;
                    self.any = true;
                }
                Err(e) => return Err(io::Error::other(e)),
            }
        }
    }
}

impl<R: BufRead> Read for ZstdFrames<R> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        loop {
            if !self.inside && !self.next_frame()? {
                return Ok(0);
            }
            while self.decoder.can_collect() == 0 && !self.decoder.is_finished() {
                let strategy = BlockDecodingStrategy::UptoBlocks(1);
                self.decoder.decode_blocks(&mut self.source, strategy).map_err(io::Error::other)?;
            }
            let n = self.decoder.read(buf)?;
            if n > 0 || buf.is_empty() {
                return Ok(n);
            }
            if let (Some(written), Some(found)) =
                (self.decoder.get_checksum_from_data(), self.decoder.get_calculated_checksum())
                && written != found
            {
                return Err(io::Error::other("zstd checksum mismatch: the file is damaged"));
            }
            self.inside = false;
        }
    }
}

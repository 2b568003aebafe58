//! Candidate words of a line, and the cheapest way through them: MeCab's `Tokenizer::lookup` and `Viterbi`.

use super::Mecab;
use super::chars::CharInfo;
use super::dictionary::Token;

/// Longest run of characters of one category that is tried as an unknown word.
const LONGEST_GROUP: usize = 24;
const NONE: usize = usize::MAX;

struct Node {
    /// First and last byte of the word.
    start: usize,
    end: usize,
    right: u16,
    cost: i64,
    /// The word before it on the cheapest way.
    before: usize,
    /// Another word that ends where this one does.
    next: usize,
}

/// The words of a line on the cheapest way. Of equally cheap ones the last found wins, as in MeCab.
pub(super) fn words<'t>(mecab: &Mecab, line: &'t str) -> Vec<&'t str> {
    let mut nodes = vec![Node { start: 0, end: 0, right: 0, cost: 0, before: NONE, next: NONE }];
    // The last word found that ends at each byte.
    let mut ends = vec![NONE; line.len() + 1];
    ends[0] = 0;
    let mut found = Vec::new();
    for at in 0..line.len() {
        if ends[at] == NONE {
            continue;
        }
        let start = look_up(mecab, line, at, &mut found);
        while let Some((token, end)) = found.pop() {
            let blank = mecab.blanks.iter().find(|(part, _)| start > at && *part == token.part);
            let own = i64::from(token.cost) + blank.map_or(0, |&(_, cost)| cost);
            let (before, cost) = cheapest(mecab, &nodes, ends[at], token.left);
            nodes.push(Node { start, end, right: token.right, cost: cost + own, before, next: ends[end] });
            ends[end] = nodes.len() - 1;
        }
    }
    let last = ends.iter().rev().find(|&&end| end != NONE).copied().unwrap_or(0);
    let (mut node, _) = cheapest(mecab, &nodes, last, 0);
    let mut words = Vec::new();
    while node != 0 {
        words.push(&line[nodes[node].start..nodes[node].end]);
        node = nodes[node].before;
    }
    words.reverse();
    words
}

/// The cheapest of the words that end in one place, before a word with this left side, and the cost up to there.
fn cheapest(mecab: &Mecab, nodes: &[Node], mut node: usize, left: u16) -> (usize, i64) {
    let mut best = (0, i64::MAX);
    while node != NONE {
        let cost = nodes[node].cost + mecab.matrix.cost(nodes[node].right, left);
        if cost < best.1 {
            best = (node, cost);
        }
        node = nodes[node].next;
    }
    best
}

/// Finds the candidates at byte `at`, as readings and last bytes; returns their first byte, after blanks.
fn look_up(mecab: &Mecab, line: &str, at: usize, found: &mut Vec<(Token, usize)>) -> usize {
    let chars = &mecab.chars;
    let blank = chars.info(' ');
    let (start, _) = skip(mecab, line, at, blank);
    let Some(first) = line[start..].chars().next() else { return start };
    let info = chars.info(first);
    mecab.system.prefixes(&line.as_bytes()[start..], |length, tokens| {
        // Inside a character there is no word, whatever a damaged dictionary says.
        if length > 0 && line.is_char_boundary(start + length) {
            found.extend(tokens.iter().map(|&token| (token, start + length)));
        }
    });
    if !found.is_empty() && !info.always() {
        return start;
    }
    let readings = &mecab.unknown[info.category()];
    let mut add = |end: usize| found.extend(readings.iter().map(|&token| (token, end)));
    let mut end = start + first.len_utf8();
    let mut group = None;
    if info.groups() {
        let (run, length) = skip(mecab, line, end, info);
        if length <= LONGEST_GROUP {
            add(run);
        }
        group = Some(run);
    }
    for _ in 0..info.length() {
        if group == Some(end) {
            break;
        }
        add(end);
        let Some(next) = line[end..].chars().next().filter(|&next| info.is_kind_of(chars.info(next))) else {
            break;
        };
        end += next.len_utf8();
    }
    if found.is_empty() {
        found.extend(readings.iter().map(|&token| (token, end)));
    }
    start
}

/// Skips characters each of which shares a category with the one before; returns the place and their number.
fn skip(mecab: &Mecab, line: &str, mut at: usize, mut kind: CharInfo) -> (usize, usize) {
    let mut count = 0;
    for c in line[at..].chars() {
        let info = mecab.chars.info(c);
        if !kind.is_kind_of(info) {
            break;
        }
        (at, count, kind) = (at + c.len_utf8(), count + 1, info);
    }
    (at, count)
}

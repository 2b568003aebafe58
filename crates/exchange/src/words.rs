//! Vocabularies of others: their symbols in the order of our ids, and the rows of matrices that belong to them.

use mae_data::Vocab;
use mae_data::sentencepiece::escape;
use mae_data::vocab::SPECIALS;

/// Symbols of a foreign vocabulary in the order of its ids.
pub(crate) struct Words {
    symbols: Vec<String>,
    /// Foreign ids of `<s>`, `<pad>`, `</s>` and `<unk>`.
    specials: [Option<usize>; 4],
    /// Number of symbols that are no fillers.
    named: usize,
}

impl Words {
    /// A vocabulary with the foreign ids of our special symbols, in the order of ours; the first `named` symbols are no
    /// fillers.
    pub(crate) fn new(symbols: Vec<String>, specials: [Option<usize>; 4], named: usize) -> Self {
        Self { symbols, specials, named }
    }

    /// Names fillers after the last named symbol, unless a symbol of such a name is there already.
    pub(crate) fn add(&mut self, names: impl Iterator<Item = String>) {
        let known: rustc_hash::FxHashSet<String> = self.symbols.iter().cloned().collect();
        for (symbol, name) in self.symbols.iter_mut().skip(self.named).zip(names) {
            if !known.contains(&name) {
                *symbol = name;
            }
        }
    }

    /// Gives symbols other names, special ones excepted.
    pub(crate) fn rename(&mut self, name: impl Fn(&str) -> String) {
        for (id, symbol) in self.symbols.iter_mut().enumerate() {
            if !self.specials.contains(&Some(id)) {
                *symbol = name(symbol);
            }
        }
    }

    /// Foreign id of each of our ids; `None` for special symbols that the vocabulary does not have.
    pub(crate) fn rows(&self) -> Vec<Option<usize>> {
        let others = (0..self.symbols.len()).filter(|id| !self.specials.contains(&Some(*id)));
        self.specials.iter().copied().chain(others.map(Some)).collect()
    }

    /// The dictionary. White space in symbols is written by number; symbols that read like one of our special symbols
    /// but are not it, and symbols that are there twice, become fillers that no text contains.
    pub(crate) fn dictionary(&self) -> Vocab {
        let mut seen: rustc_hash::FxHashSet<String> =
            SPECIALS.iter().map(|&special| special.to_owned()).collect();
        let mut symbols = Vec::new();
        for row in self.rows().into_iter().skip(SPECIALS.len()).flatten() {
            let mut symbol = escape(&self.symbols[row]).into_owned();
            if symbol.is_empty() || !seen.insert(symbol.clone()) {
                symbol = format!("madeupword{row:04}");
                seen.insert(symbol.clone());
            }
            symbols.push(symbol);
        }
        Vocab::from_symbols(symbols)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn special_symbols_come_first() {
        let symbols = ["</s>", "a", "<unk>", "b c", "<s>", "a", "<pad>"].map(str::to_owned).to_vec();
        let words = Words::new(symbols, [None, Some(6), Some(0), Some(2)], 7);
        assert_eq!(words.rows(), [None, Some(6), Some(0), Some(2), Some(1), Some(3), Some(4), Some(5)]);
        let dictionary = words.dictionary();
        let found: Vec<&str> = (0..8).map(|id| dictionary.symbol(id)).collect();
        let wanted = ["<s>", "<pad>", "</s>", "<unk>", "a", "b<U+0020>c", "madeupword0004", "madeupword0005"];
        assert_eq!(found, wanted);
    }
}

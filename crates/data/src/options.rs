//! Options that cannot be carried out. A fault names the options it concerns by [`Setting`], so that a program
//! can tell its users which of its own flags to change.

use std::path::PathBuf;

use crate::moses::Lang;

/// An option of this crate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Setting {
    /// Archives and folders that a corpus is taken from.
    Archive,
    /// Policy for bytes that are not UTF-8.
    BadUtf8,
    /// Merges to learn.
    Bpe,
    /// Merges that were learned before.
    BpeCodes,
    /// Probability of skipping a merge.
    BpeDropout,
    /// Tokens before a block that are read again.
    ContextWindow,
    /// The kind of corpus that is prepared.
    Corpus,
    /// The folder to write to.
    Destdir,
    /// Policy for empty lines of validation and test texts.
    EmptyEval,
    /// Policy for empty lines of the training text.
    EmptyTrain,
    /// Words that merges leave alone.
    Glossaries,
    /// One dictionary for both languages.
    JoinedDictionary,
    /// Policy for over-long lines of validation and test texts.
    LongEval,
    /// Policy for over-long lines of the training text.
    LongTrain,
    /// Most tokens of a side.
    MaxLen,
    /// Tokens of a batch.
    MaxTokens,
    /// Fewest tokens of a side.
    MinLen,
    /// Moses' normaliser of punctuation.
    Normalize,
    /// One text instead of two.
    OnlySource,
    /// Patterns that are kept in one piece.
    Protect,
    /// Largest ratio of the sides' lengths.
    Ratio,
    /// Ends of blocks.
    SampleBreakMode,
    /// Language of the source.
    SourceLang,
    /// Dictionary of the source.
    Srcdict,
    /// Language of the target.
    TargetLang,
    /// Purpose of the data: translation or language modelling.
    Task,
    /// Test texts.
    Testpref,
    /// Pairs held out to test on.
    TestSize,
    /// Dictionary of the target.
    Tgtdict,
    /// Moses' tokeniser.
    Tokenize,
    /// A `tokenizer.json`.
    Tokenizer,
    /// Tokens of a block.
    TokensPerSample,
    /// Training text.
    Trainpref,
    /// Validation texts.
    Validpref,
    /// Pairs held out to validate on.
    ValidSize,
}

/// Options that cannot be carried out, alone or together.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum OptionFault {
    /// Both sides have one name.
    #[error("source and target language are both `{0}`; give the two sides different names")]
    SameLanguage(String),
    /// A language cannot be the ending of a file.
    #[error("`{0}` is not a language: expected a file ending such as `de`, not empty, without `.` or `/`")]
    Language(String),
    /// One text, with options of the other side.
    #[error(
        "one text has no target: leave out the target dictionary, the joined dictionary and separate BPE codes"
    )]
    TargetOfOneText,
    /// A joined dictionary is given twice.
    #[error("a joined dictionary is one dictionary: give that of the source or that of the target, not both")]
    TwoJoinedDictionaries,
    /// Nothing to make the dictionary of one text from.
    #[error("without a training text the dictionary must be given")]
    NoDictionary,
    /// Nothing to make the dictionaries of two texts from.
    #[error("without a training text both dictionaries must be given")]
    NoDictionaries,
    /// Nothing to learn merges from.
    #[error("learning BPE needs a training text: give one, or codes that were learned before")]
    NothingToLearnFrom,
    /// Dropout of merges that there are not.
    #[error("BPE dropout skips merges, and there are none: learn merges, give codes, or leave dropout out")]
    DropoutWithoutMerges,
    /// Words cannot be cut anew.
    #[error(
        "BPE dropout skips merges, and this data set has none: prepare or preprocess it so that merges are learned or \
         given, and not applied beforehand"
    )]
    NoMergesToSkip,
    /// No probability.
    #[error("BPE dropout is a probability, from 0 to 1; {0} is not")]
    DropoutProbability(f64),
    /// No text at all.
    #[error("nothing to do: give a training, validation or test text")]
    NoTexts,
    /// Nothing to train on.
    #[error("there is no training text")]
    NoTrainingText,
    /// The folder holds a data set of another kind or pair of languages.
    #[error(
        "{} holds another data set already ({holds}), whose dictionaries and BPE codes this one would replace; \
         choose another folder", folder.display()
    )]
    AnotherDataSet {
        /// The folder.
        folder: PathBuf,
        /// Its data set: a pair of languages, or `one text`.
        holds: String,
    },
    /// A split of an earlier run would no longer fit the dictionaries or codes.
    #[error(
        "{} holds the split `{split}` of an earlier run, which is not written now, and {replaced} would be \
         replaced by another: `{split}` would no longer fit. Give all texts again, or the dictionaries and codes \
         that are there; choose another folder; or remove `{split}` there", folder.display()
    )]
    EarlierSplit {
        /// The folder.
        folder: PathBuf,
        /// The split.
        split: String,
        /// The dictionary or codes that would be replaced.
        replaced: String,
    },
    /// A file that is no result of an earlier run would be replaced.
    #[error(
        "{} would be replaced, and its folder was not made by an earlier run; name another folder for the results",
        path.display()
    )]
    FileOfOthers {
        /// The file.
        path: PathBuf,
    },
    /// Every pair would be held out.
    #[error("holding every pair out leaves nothing to train on; hold out every second one or fewer")]
    AllHeldOut,
    /// More pairs would be held out than there are.
    #[error(
        "{valid} pairs to validate on and {test} to test on cannot be held out of {total}; {}",
        if *total == 0 { "the training text has no pairs" } else { "ask for fewer" }
    )]
    HoldOut {
        /// Pairs to validate on.
        valid: u64,
        /// Pairs to test on.
        test: u64,
        /// Pairs there are.
        total: u64,
    },
    /// Files of a corpus are not where they were looked for.
    #[error(
        "not found in {} or an archive there: {}; name the archives as they were downloaded, or folders with \
         them or with the extracted files", join(places.iter().map(|place| place.display())), join(missing)
    )]
    MissingFiles {
        /// Archives and folders.
        places: Vec<PathBuf>,
        /// Names of the files.
        missing: Vec<String>,
    },
    /// A corpus has no text in these languages.
    #[error(
        "this corpus is prepared for {known}, not {src} and {tgt}; any two aligned files can be \
         prepared as a parallel corpus"
    )]
    CorpusLanguages {
        /// The two that it has.
        known: &'static str,
        /// Source language.
        src: String,
        /// Target language.
        tgt: String,
    },
    /// Moses' tools have no rules for a language.
    #[error("no rules for the language `{0}`; there are rules for {known}", known = Lang::codes())]
    NoRules(String),
    /// No length is allowed.
    #[error("no length is at least {min} and at most {max} tokens; swap them?")]
    Lengths {
        /// Fewest tokens.
        min: usize,
        /// Most tokens.
        max: usize,
    },
    /// A ratio that no pair has.
    #[error("the ratio {0} must be at least 1, or no pair is kept")]
    Ratio(f64),
    /// A pattern that is not a regular expression.
    #[error("the protected pattern `{pattern}` is wrong: {fault}")]
    Pattern {
        /// The pattern.
        pattern: String,
        /// Reason.
        fault: String,
    },
    /// A glossary that is not a regular expression.
    #[error("the glossary `{pattern}` is wrong: {fault}")]
    Glossary {
        /// The pattern.
        pattern: String,
        /// Reason.
        fault: String,
    },
    /// A line with more protected places than can be told apart.
    #[error(
        "the protected patterns match {found} times in one line, {most} at most can be kept; use narrower \
         patterns or split the line"
    )]
    TooManyMatches {
        /// Matches in the line.
        found: usize,
        /// Limit.
        most: usize,
    },
    /// Protected places so short that they are found in one another's stand-ins.
    #[error(
        "the protected patterns match parts of a line that are too short to be kept, such as single letters; use \
         patterns of longer texts"
    )]
    ShortMatches,
    /// Batches that hold nothing.
    #[error("a batch must have room for at least one token and one sentence")]
    EmptyBatch,
    /// Not a way of ending blocks.
    #[error("sample_break_mode `{0}` is not known; there are none, complete and eos")]
    BreakMode(String),
    /// Blocks that are nothing but context.
    #[error(
        "tokens_per_sample = {tokens} with context_window = {context}: a block must have room for at least \
         one new token"
    )]
    NoRoomInBlock {
        /// Tokens of a block.
        tokens: usize,
        /// Tokens of its context.
        context: usize,
    },
}

impl OptionFault {
    /// Options to change.
    pub fn settings(&self) -> &'static [Setting] {
        use Setting::*;
        match self {
            Self::SameLanguage(_) | Self::Language(_) => &[SourceLang, TargetLang],
            Self::TargetOfOneText => &[OnlySource, Tgtdict, JoinedDictionary],
            Self::TwoJoinedDictionaries => &[JoinedDictionary, Srcdict, Tgtdict],
            Self::NoDictionary => &[Trainpref, Srcdict],
            Self::NoDictionaries => &[Trainpref, Srcdict, Tgtdict],
            Self::NothingToLearnFrom => &[Trainpref, BpeCodes],
            Self::DropoutWithoutMerges => &[BpeDropout, Bpe, BpeCodes],
            Self::DropoutProbability(_) => &[BpeDropout],
            Self::NoTexts => &[Trainpref, Validpref, Testpref],
            Self::NoTrainingText => &[Trainpref],
            Self::AnotherDataSet { .. } | Self::EarlierSplit { .. } => &[Destdir],
            Self::FileOfOthers { .. } => &[Destdir],
            Self::HoldOut { .. } => &[ValidSize, TestSize],
            Self::MissingFiles { .. } => &[Archive],
            Self::CorpusLanguages { .. } => &[Corpus],
            Self::NoRules(_) => &[Tokenize, Normalize],
            Self::Lengths { .. } => &[MinLen, MaxLen],
            Self::Ratio(_) => &[Ratio],
            Self::Pattern { .. } | Self::TooManyMatches { .. } | Self::ShortMatches => &[Protect],
            Self::Glossary { .. } => &[Glossaries],
            Self::EmptyBatch => &[MaxTokens],
            Self::BreakMode(_) => &[SampleBreakMode],
            Self::NoRoomInBlock { .. } => &[TokensPerSample, ContextWindow],
            Self::AllHeldOut | Self::NoMergesToSkip => &[],
        }
    }
}

fn join(items: impl IntoIterator<Item = impl ToString>) -> String {
    items.into_iter().map(|item| item.to_string()).collect::<Vec<_>>().join(", ")
}

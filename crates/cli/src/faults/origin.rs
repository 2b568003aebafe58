//! The library that an error comes from: crates pass errors of those below them on.

use std::error::Error;

/// An error that no other library has passed on.
pub(super) enum Origin<'a> {
    /// Of the data.
    Data(&'a mae_data::Error),
    /// Of a device.
    Engine(&'a mae_engine::Error),
    /// Of a model.
    Model(&'a mae_model::Error),
}

impl<'a> Origin<'a> {
    /// The error that this one is or passes on.
    pub(super) fn of(error: &'a (dyn Error + 'static)) -> Option<Self> {
        if let Some(error) = error.downcast_ref() {
            return Some(Self::Data(error));
        }
        if let Some(error) = error.downcast_ref() {
            return Some(Self::Engine(error));
        }
        let passed =
            model(error).or_else(|| train(error)).or_else(|| translate(error)).or_else(|| eval(error));
        match passed {
            Some(passed) => Self::of(passed),
            None => error.downcast_ref().map(Self::Model),
        }
    }
}

type Passed<'a> = Option<&'a (dyn Error + 'static)>;

fn model<'a>(error: &'a (dyn Error + 'static)) -> Passed<'a> {
    match error.downcast_ref()? {
        mae_model::Error::Data(error) => Some(error),
        mae_model::Error::Engine(error) => Some(error),
        _ => None,
    }
}

fn train<'a>(error: &'a (dyn Error + 'static)) -> Passed<'a> {
    match error.downcast_ref()? {
        mae_train::Error::Model(error) => Some(error),
        mae_train::Error::Data(error) => Some(error),
        mae_train::Error::Engine(error) => Some(error),
        _ => None,
    }
}

fn translate<'a>(error: &'a (dyn Error + 'static)) -> Passed<'a> {
    match error.downcast_ref()? {
        mae_translate::Error::Model(error) | mae_translate::Error::Load { source: error, .. } => Some(error),
        mae_translate::Error::Data(error) => Some(error),
        mae_translate::Error::Engine(error) => Some(error),
        _ => None,
    }
}

fn eval<'a>(error: &'a (dyn Error + 'static)) -> Passed<'a> {
    match error.downcast_ref()? {
        mae_eval::Error::Translate(error) => Some(error),
        mae_eval::Error::Model(error) => Some(error),
        mae_eval::Error::Data(error) => Some(error),
        mae_eval::Error::Engine(error) => Some(error),
        _ => None,
    }
}

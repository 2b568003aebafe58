//! `mae recipes`: the recipes of the program.

use anyhow::Result;
use mae_model::folder::Task;
use mae_model::{Config, LmConfig, ModelConfig};
use mae_train::{Recipe, recipe};

use crate::exit::ExitCode;

const EXAMPLES: &str = "\
Examples:
  List all recipes with their task, sizes and system:
    mae recipes

  Print one as TOML with all its keys, to change it:
    mae recipes multi30k-mae7 > my.toml
    mae train data-bin --recipe my.toml --save-dir runs/mine";

/// List the recipes of `mae train`, or print one with all its keys.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Recipe to print: a name or a .toml file [default: a list of all].
    recipe: Option<String>,
}

/// Runs the command.
pub fn run(args: Args) -> Result<ExitCode> {
    match &args.recipe {
        Some(name) => {
            let recipe = Recipe::load(name)?.to_toml()?;
            if let Some(purpose) = recipe::purpose(name) {
                println!("# {purpose}.\n");
            }
            print!("{recipe}");
        }
        None => {
            for name in recipe::names() {
                println!("{name:<18}{}", description(name)?);
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Task, sizes and system of a recipe, in a line.
fn description(name: &str) -> Result<String> {
    let recipe = Recipe::load(name)?;
    let (task, layers, width, mixture, heads) = match recipe.task() {
        Task::Translation => {
            let model = recipe.config::<ModelConfig>()?.model;
            let layers = format!("{}+{}", model.encoder_layers, model.decoder_layers);
            ("translation", layers, model.encoder_embed_dim, model.mixture.clone(), model.heads())
        }
        Task::LanguageModeling => {
            let model = recipe.config::<LmConfig>()?.model;
            (
                "language",
                model.decoder_layers.to_string(),
                model.decoder_embed_dim,
                model.mixture.clone(),
                model.heads(),
            )
        }
    };
    let experts =
        mixture.experts(heads).map_or(String::new(), |experts| format!(", {} experts", experts.count()));
    let system = mixture.system;
    Ok(format!("{task:<13}{layers:>3} layers, width {width:>4}, {heads:>2} heads: {system}{experts}"))
}

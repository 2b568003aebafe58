//! Configurations: of runs, as files and as `key=value`, and of model folders.
#![no_main]

use libfuzzer_sys::fuzz_target;
use mae_model::{LmConfig, ModelConfig, folder};
use mae_train::config::{RunConfig, assignment};

fuzz_target!(|bytes: &[u8]| {
    folder::task(mae_fuzz::file(folder::CONFIG, bytes).parent().expect("a file lies in a folder")).ok();
    folder::load_config::<ModelConfig>(&mae_fuzz::folder()).ok();
    folder::load_config::<LmConfig>(&mae_fuzz::folder()).ok();
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let layers = [text.parse().ok(), text.lines().next().and_then(|line| assignment(line).ok())];
    for layer in layers.into_iter().flatten() {
        let Ok(config) = RunConfig::from_layers(&[layer]) else { continue };
        let again: RunConfig = toml::from_str(&config.to_toml()).expect("our own text can be read");
        assert_eq!(again, config);
    }
});

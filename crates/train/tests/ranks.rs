//! K ranks make the bits of one process with `update_freq` K: every weight and moment. Threads are the ranks here.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use mae_data::files::FolderLock;
use mae_engine::collective::{Collective, Ending, Overlap, Tcp, Team, Transport};
use mae_train::checkpoint::{Resets, Writer};
use mae_train::log::Event;
use mae_train::{Error, Learner, Outcome, Result, RunConfig, Trainer};

use crate::common::{bits, config, data, learner, text};

/// Trains as one rank of a team. `watch` sees the events, and may set the flag that stops the run.
fn train(
    folder: &Path,
    config: &RunConfig,
    team: Team,
    mut watch: impl FnMut(&Event, &AtomicBool),
) -> Result<(Learner, Outcome)> {
    let (train, valid, stop) = (data(60, 0), data(10, 100), AtomicBool::new(false));
    let lock = team.place().is_first().then(|| FolderLock::take(folder).unwrap());
    let trainer = Trainer {
        config: config.clone(),
        learner: learner(config).among(team.clone()),
        train: &train,
        valid: Some(&valid),
        text: text(),
        folder: folder.to_owned(),
        record: None,
        tensorboard: None,
        resets: Resets::default(),
        validator: None,
        stop: &stop,
        writer: Writer::new().unwrap(),
        lock: lock.as_ref(),
    };
    let trained = trainer.run(|event| watch(event, &stop));
    match &trained {
        Ok(_) => team.host().leave(Ending::Finished),
        Err(error) => team.host().leave(Ending::Failed(&error.to_string())),
    }
    trained
}

/// A run of one process.
fn alone(folder: &Path, config: &RunConfig) -> Learner {
    train(folder, config, Team::alone(), |_, _| {}).unwrap().0
}

/// A rank. The gradients of the small models here leave in many slices.
fn team(tcp: Tcp) -> Team {
    Team::of(Arc::new(tcp)).in_slices_of(500).overlapping(Overlap::Always)
}

/// Results of all ranks.
fn together(folder: &Path, config: &RunConfig, ranks: usize) -> Vec<Result<(Learner, Outcome)>> {
    Tcp::among_threads(ranks, |tcp| train(folder, config, team(tcp), |_, _| {}))
}

fn file(folder: &Path, name: &str) -> Vec<u8> {
    std::fs::read(folder.join("checkpoint_last").join(name)).unwrap()
}

fn with_update_freq(system: &str, extra: &[&str], freq: usize) -> RunConfig {
    let freq = format!("train.update_freq={freq}");
    config(system, &[extra, &[freq.as_str()]].concat())
}

#[test]
fn ranks_make_the_bits_of_one_process() {
    let by_update = ["train.gate_every_updates=2"];
    let adam = ["train.gate_optimizer=adam", "train.gate_lr=0.01", "train.joint_gate_every_updates=3"];
    for (system, extra, ranks, freq) in [
        ("base", &[][..], 2, 1),
        ("mae", &by_update, 2, 1),
        ("mae", &by_update, 3, 1),
        ("mae", &[], 4, 1),
        ("mae", &by_update, 2, 2),
        ("nobcd", &[], 3, 1),
        ("nobcd", &adam, 2, 1),
        ("base", &["train.batching=frozen", "train.max_sentences=9"], 4, 1),
        ("uniform", &["train.save_interval_updates=3"], 2, 1),
    ] {
        let (one, many) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let wanted = alone(one.path(), &with_update_freq(system, extra, ranks * freq));
        let learners = together(many.path(), &with_update_freq(system, extra, freq), ranks);
        for (rank, trained) in learners.into_iter().enumerate() {
            let (learner, outcome) = trained.unwrap();
            assert_eq!(outcome, Outcome::Finished);
            assert_eq!(learner.counters(), wanted.counters());
            assert!(bits(&learner) == bits(&wanted), "{system}: rank {rank} of {ranks}");
        }
        for name in ["model.safetensors", "optimizer.safetensors"] {
            assert!(file(one.path(), name) == file(many.path(), name), "{system}, {ranks} ranks: {name}");
        }
        let lines = |folder: &Path| {
            let log = std::fs::read_to_string(folder.join("log.jsonl")).unwrap();
            let losses = |event: serde_json::Value| {
                let kind = event["event"].as_str().unwrap_or_default().to_owned();
                (kind == "train" || kind == "valid").then(|| {
                    format!(
                        "{} {} {} {}",
                        event["num_updates"], event["loss"], event["gnorm"], event["sentences"]
                    )
                })
            };
            log.lines().filter_map(|line| losses(serde_json::from_str(line).unwrap())).collect::<Vec<_>>()
        };
        assert_eq!(lines(one.path()), lines(many.path()), "{system}: logged losses differ");
    }
}

/// Slices that leave while the walk back goes on, all slices after it, and one slice: the same bits.
#[test]
fn the_way_of_gradients_changes_no_bit() {
    let config = with_update_freq("mae", &["train.gate_every_updates=2"], 2);
    let trained = |adapt: fn(Team) -> Team| {
        let folder = tempfile::tempdir().unwrap();
        let work = |tcp| train(folder.path(), &config, adapt(Team::of(Arc::new(tcp))), |_, _| {});
        let ranks = Tcp::among_threads(2, work);
        ranks.into_iter().map(|rank| bits(&rank.unwrap().0)).collect::<Vec<_>>()
    };
    let wanted = trained(|team| team.overlapping(Overlap::Never));
    assert!(wanted[0] == wanted[1]);
    assert!(trained(|team| team.overlapping(Overlap::Always)) == wanted);
    assert!(trained(|team| team.in_slices_of(1).overlapping(Overlap::Always)) == wanted);
    assert!(trained(|team| team.in_slices_of(1)) == wanted);
}

/// Each rank has the memory of its slice only; files have all of it, and a run resumes from them with or without.
#[test]
fn a_shared_memory_of_the_optimiser_changes_no_bit() {
    for (system, extra, ranks) in [
        ("base", &[][..], 2),
        ("mae", &["train.gate_every_updates=2", "train.clip_norm=0.5"], 3),
        ("base", &["train.optimizer=nag"], 2),
    ] {
        let (one, many) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let wanted = alone(one.path(), &with_update_freq(system, extra, ranks));
        let sharded = [extra, &["train.zero=1"]].concat();
        let half = [&sharded[..], &["train.max_update=3"]].concat();
        together(many.path(), &with_update_freq(system, &half, 1), ranks)
            .into_iter()
            .for_each(|trained| drop(trained.unwrap()));
        let learners = together(many.path(), &with_update_freq(system, &sharded, 1), ranks);
        for (rank, trained) in learners.into_iter().enumerate() {
            let (learner, _) = trained.unwrap();
            assert!(learner.is_sharded());
            for (group, name) in mae_model::groups::ALL {
                let values = |learner: &Learner| {
                    let values = learner.model.params().group_to_host(group);
                    values.into_iter().map(f32::to_bits).collect::<Vec<_>>()
                };
                assert!(values(&learner) == values(&wanted), "{system}: {name} of rank {rank} of {ranks}");
            }
        }
        for name in ["model.safetensors", "optimizer.safetensors"] {
            assert!(file(one.path(), name) == file(many.path(), name), "{system}, {ranks} ranks: {name}");
        }
    }
}

/// Gradients that travel as bfloat16: the same on all ranks and in every run, and near those of one process.
#[test]
fn gradients_in_bfloat16_are_the_same_on_all_ranks() {
    let one = tempfile::tempdir().unwrap();
    let wanted = alone(one.path(), &with_update_freq("mae", &[], 2));
    let config = with_update_freq("mae", &[], 1);
    let trained = || {
        let folder = tempfile::tempdir().unwrap();
        let ranks = Tcp::among_threads(2, |tcp| {
            let team = team(tcp).sending(Transport::Bf16);
            train(folder.path(), &config, team, |_, _| {})
        });
        ranks.into_iter().map(|rank| bits(&rank.unwrap().0)).collect::<Vec<_>>()
    };
    let (first, second) = (trained(), trained());
    assert!(first[0] == first[1] && first == second);
    let (got, wanted) = (&first[0], bits(&wanted));
    assert!(*got != wanted, "values are rounded");
    let far = got
        .iter()
        .zip(&wanted)
        .map(|(&got, &wanted)| f64::from((f32::from_bits(got) - f32::from_bits(wanted)).abs()));
    let norm: f64 = wanted.iter().map(|&bits| f64::from(f32::from_bits(bits)).powi(2)).sum::<f64>().sqrt();
    let distance = far.map(|far| far * far).sum::<f64>().sqrt();
    assert!(distance < 0.02 * norm, "{distance} of {norm}");
}

#[test]
fn a_run_resumes_with_another_number_of_ranks() {
    // Two ranks, stopped in the middle of an epoch; then one process with as many batches in an update; then four.
    let (one, many) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let wanted = alone(one.path(), &with_update_freq("mae", &[], 4));
    let config = with_update_freq("mae", &[], 2);
    let stopped = Tcp::among_threads(2, |tcp| {
        let rank = tcp.place().rank;
        train(many.path(), &config, team(tcp), |event, stop| {
            // One rank alone is told to stop.
            let is_due = rank == 1 && matches!(event, Event::Update { done: 2 });
            stop.fetch_or(is_due, Ordering::Relaxed);
        })
        .map(|(learner, outcome)| (learner.counters().updates, outcome))
    });
    for stopped in stopped {
        assert_eq!(stopped.unwrap(), (2, Outcome::Interrupted));
    }
    let half = with_update_freq("mae", &["train.max_update=9"], 4);
    alone(many.path(), &half);
    for trained in together(many.path(), &with_update_freq("mae", &[], 1), 4) {
        assert!(bits(&trained.unwrap().0) == bits(&wanted));
    }
}

#[test]
fn a_rank_with_another_configuration_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let errors = Tcp::among_threads(3, |tcp| {
        let extra: &[&str] = if tcp.place().rank == 2 { &["train.lr=0.25"] } else { &[] };
        train(folder.path(), &config("mae", extra), Team::of(Arc::new(tcp)), |_, _| {})
            .err()
            .unwrap()
            .to_string()
    });
    for error in errors {
        assert!(error.contains("rank 2 cannot take part"), "{error}");
        assert!(error.contains("train.lr is 0.25 on rank 2 and 0.002 on rank 0"), "{error}");
    }
    assert!(!folder.path().join("log.jsonl").exists());
}

#[test]
fn a_loss_that_is_no_number_ends_all_ranks_alike() {
    let folder = tempfile::tempdir().unwrap();
    let config = with_update_freq("mae", &["train.lr=1e30", "train.warmup_updates=0"], 1);
    for trained in together(folder.path(), &config, 2) {
        let error = trained.err().unwrap();
        let Error::NotFinite(diagnosis) = &error else { panic!("{error}") };
        assert_eq!((diagnosis.update, diagnosis.batches), (2, [3, 4]));
        assert!(!diagnosis.sentences.is_empty());
    }
    assert!(folder.path().join("checkpoint_nonfinite/diagnosis.json").exists());
}

#[test]
fn a_rank_that_ends_is_named_and_the_checkpoint_stays() {
    let folder = tempfile::tempdir().unwrap();
    let config = with_update_freq("mae", &["train.save_interval_updates=2"], 1);
    let errors = Tcp::among_threads(3, |tcp| {
        let rank = tcp.place().rank;
        let team = team(tcp);
        let mut updates = 0;
        let trained = train(folder.path(), &config, team.clone(), |event, _| {
            updates += u64::from(matches!(event, Event::Update { .. }));
            if rank == 1 && updates == 5 && matches!(event, Event::Update { .. }) {
                team.host().leave(Ending::Failed("the disk is full"));
            }
        });
        trained.err().map(|error| error.to_string())
    });
    for error in [&errors[0], &errors[2]] {
        let error = error.as_deref().unwrap();
        assert!(error.contains("rank 1") && error.contains("the disk is full"), "{error}");
    }
    let whole = tempfile::tempdir().unwrap();
    let wanted = alone(whole.path(), &with_update_freq("mae", &["train.save_interval_updates=2"], 3));
    for trained in together(folder.path(), &config, 3) {
        assert!(bits(&trained.unwrap().0) == bits(&wanted));
    }
}

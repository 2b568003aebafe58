//! Binary datasets: round trips, fairseq's bytes, and damage of every kind.

use std::fs;

use mae_data::dataset::{DatasetWriter, IndexedDataset};

use crate::common::{Folder, Random};

fn write(folder: &Folder, vocab: usize, sentences: &[Vec<u32>]) {
    let mut writer = DatasetWriter::create(folder.path("d"), vocab).unwrap();
    sentences.iter().for_each(|ids| writer.push(ids).unwrap());
    assert_eq!((writer.len(), writer.is_empty()), (sentences.len(), sentences.is_empty()));
    writer.finish().unwrap();
}

#[test]
fn what_is_written_is_read() {
    let mut random = Random(1);
    for vocab in [10, 65_499, 65_500, 70_000] {
        for n in [0, 1, 7, 500] {
            let folder = Folder::new();
            let sentences: Vec<Vec<u32>> =
                (0..n).map(|_| (0..random.below(30)).map(|_| random.below(vocab) as u32).collect()).collect();
            write(&folder, vocab, &sentences);
            let data = IndexedDataset::open(folder.path("d")).unwrap();
            assert_eq!((data.len(), data.is_empty()), (n, n == 0));
            assert_eq!(data.tokens() as usize, sentences.iter().map(Vec::len).sum::<usize>());
            for (i, ids) in sentences.iter().enumerate() {
                assert_eq!((data.size(i), data.get(i)), (ids.len(), ids.clone()));
            }
            assert_eq!(folder.names(), ["d.bin", "d.idx"]);
        }
    }
}

#[test]
fn bytes_are_fairseqs() {
    let folder = Folder::new();
    write(&folder, 100, &[vec![4, 2], vec![300 % 100, 7, 2]]);
    assert_eq!(fs::read(folder.path("d.bin")).unwrap(), [4, 0, 2, 0, 0, 0, 7, 0, 2, 0]);
    let mut idx = b"MMIDIDX\0\0".to_vec();
    idx.extend(1_u64.to_le_bytes());
    idx.push(8);
    idx.extend(2_u64.to_le_bytes());
    idx.extend([2_i32, 3].iter().flat_map(|n| n.to_le_bytes()));
    idx.extend([0_i64, 4].iter().flat_map(|n| n.to_le_bytes()));
    assert_eq!(fs::read(folder.path("d.idx")).unwrap(), idx);
}

#[test]
fn all_integer_types_are_read() {
    let numbers = [4_u8, 0, 127, 2];
    for (code, width) in [(1_u8, 1), (2, 1), (3, 2), (4, 4), (5, 8), (8, 2)] {
        let folder = Folder::new();
        write(&folder, 200, &[numbers.iter().map(|&n| u32::from(n)).collect()]);
        let mut idx = fs::read(folder.path("d.idx")).unwrap();
        idx[17] = code;
        folder.write("d.idx", idx);
        let bin = numbers.iter().flat_map(|&n| (0..width).map(move |i| if i == 0 { n } else { 0 }));
        folder.write("d.bin", bin.collect::<Vec<_>>());
        assert_eq!(IndexedDataset::open(folder.path("d")).unwrap().get(0), [4, 0, 127, 2], "code {code}");
    }
}

#[test]
fn negative_numbers_are_no_ids() {
    let folder = Folder::new();
    write(&folder, 70_000, &[vec![5, 2]]);
    folder.write("d.bin", [(-1_i32).to_le_bytes(), 2_i32.to_le_bytes()].concat());
    assert_eq!(IndexedDataset::open(folder.path("d")).unwrap().get(0), [u32::MAX, 2]);
}

#[test]
fn damage_is_an_error_and_never_a_panic() {
    let folder = Folder::new();
    write(&folder, 100, &[vec![4, 2], vec![5, 6, 2]]);
    let (idx, bin) = (fs::read(folder.path("d.idx")).unwrap(), fs::read(folder.path("d.bin")).unwrap());
    for cut in 0..idx.len() {
        folder.write("d.idx", &idx[..cut]);
        assert!(IndexedDataset::open(folder.path("d")).is_err(), "index cut at {cut}");
    }
    folder.write("d.idx", &idx);
    for cut in 0..bin.len() {
        folder.write("d.bin", &bin[..cut]);
        let said = IndexedDataset::open(folder.path("d")).unwrap_err().to_string();
        assert!(said.contains("lies outside"), "bin cut at {cut}: {said}");
    }
    folder.write("d.bin", &bin);
    let mut random = Random(9);
    for _ in 0..400 {
        let mut bad = idx.clone();
        for _ in 0..=random.below(3) {
            let at = random.below(bad.len());
            bad[at] = random.below(256) as u8;
        }
        folder.write("d.idx", &bad);
        if let Ok(data) = IndexedDataset::open(folder.path("d")) {
            (0..data.len()).for_each(|i| assert_eq!(data.get(i).len(), data.size(i)));
        }
    }
    folder.write("d.idx", b"TNTIDX\0\0 and so on, and so on, and so on");
    assert!(IndexedDataset::open(folder.path("d")).unwrap_err().to_string().contains("old"));
    assert!(IndexedDataset::open(folder.path("none")).is_err());
    assert!(IndexedDataset::exists(folder.path("d")) && !IndexedDataset::exists(folder.path("none")));
}

#[test]
fn nothing_stays_of_what_was_not_finished() {
    let folder = Folder::new();
    let mut writer = DatasetWriter::create(folder.path("d"), 10).unwrap();
    writer.push(&[4, 2]).unwrap();
    assert!(writer.push(&[10]).unwrap_err().to_string().contains("id 10"));
    drop(writer);
    assert!(folder.names().is_empty());
}

//! The distance of the catalogue's drives from what was measured.

use crate::flash::validation::{Answer, Half, MEASURED, Operation, Share, parse, predict, regions};
use crate::flash::{Model, Ssd};

fn answers(name: &str) -> Vec<Answer> {
    let (_, text) = MEASURED.iter().find(|(other, _)| *other == name).expect("it was measured");
    let model = Model::Ssd(*Ssd::named(name).expect("a drive"));
    let cases = parse(text).expect("measurements");
    let predicted = cases.into_iter().map(|case| {
        let predicted = predict(&model, &case).expect("a drive").expect("it has this operation");
        Answer { case, predicted }
    });
    predicted.collect()
}

/// Aim: one set of constants answers cases that were not used to find it. Method: mean latency and throughput of both halves
/// within 2 % in the median case and within 25 % in the worst; those beyond 10 % are at depths of 2 to 8, where the drive's
/// jitter costs throughput that a model without chance does not lose.
#[test]
fn nvme_a_is_as_measured() {
    let answers = answers("nvme-a");
    assert_eq!(answers.len(), 210);
    for half in [Half::Fitted, Half::HeldOut] {
        let of_half = || answers.iter().filter(move |answer| answer.case.half() == half);
        let share = Share::of(of_half()).expect("cases");
        assert!(share.cases >= 80, "{half:?}: {}", share.cases);
        assert!(share.latency_median < 0.02 && share.throughput_median < 0.02, "{half:?}: {share:?}");
        assert!(share.latency_worst < 0.25 && share.throughput_worst < 0.25, "{half:?}: {share:?}");
    }
    let off = answers.iter().filter(|answer| answer.latency_error().abs() > 0.1);
    let depths: Vec<u32> = off.map(|answer| answer.case.depth).collect();
    assert!(depths.len() <= 8 && depths.iter().all(|depth| (1..=8).contains(depth)), "{depths:?}");
    assert!(regions(&answers).iter().all(|(region, _)| region.operation <= Operation::WriteRandom));
}

/// Lines that are not understood are named; those of mixtures and without a result are left out.
#[test]
fn measurements_are_parsed() {
    let head = "engine,format,case,block_size,iodepth,iops,latency_mean_us\n";
    let good =
        "spdk,lbaf2,append/4096bs/3zone,4096,8,133487.0,179.33\nspdk,lbaf2,append_read/4096bs/1zone,4096,8,1,1\n";
    let cases =
        parse(&format!("# a comment\n{head}{good}io_uring,lbaf3,write/512bs/1zone,512,1,0,0\n")).expect("good lines");
    assert_eq!(cases.len(), 1);
    assert_eq!((cases[0].operation, cases[0].zones, cases[0].depth), (Operation::Append, 3, 8));
    for (text, line) in [("", "no lines"), ("engine\n", "line 1"), (&format!("{head}a,b,write/x,y,1,1,1\n"), "line 2")]
    {
        let problem = parse(text).expect_err("a bad text");
        assert!(problem.contains(line), "{problem}");
    }
    assert!(parse(&format!("{head}a,b,write/x,4096,1.5,1,1\n")).is_err());
    assert!(parse(&format!("{head}a,b,write/x\n")).is_err());
}

//! Shards: every point in exactly one, and what they measured put together again.

use std::path::Path;

use seekless::rng::Rng;

use super::costs::Spent;
use super::*;

/// Makes a sweep of `values` points for each of two contestants.
fn experiment(folder: &Path, values: u64) -> Experiment {
    let listed: Vec<String> = (1..=values).map(|value| value.to_string()).collect();
    let text = format!(
        "title = \"t\"\n\
         workload = {{ kind = \"requests\", pattern = \"random\", operation = \"read\", bytes = \"4KiB\", span = \"64MiB\", requests = \"{{n}}\", timing = \"closed\" }}\n\
         contestant = [{{ name = \"one\", on = \"disk:cheetah9lp\" }}, {{ name = \"other\", on = \"disk:hp97560\" }}]\n\
         variables.n.values = [{}]\n",
        listed.join(", ")
    );
    std::fs::write(folder.join("experiment.toml"), text).unwrap();
    Experiment::read(folder).unwrap()
}

fn measure(value: f64) -> Round {
    vec![Measure { dims: [].into(), metrics: [("elapsed_s".to_owned(), value)].into() }]
}

/// The points of a shard that are true in `mine`.
fn count(mine: &[bool]) -> usize {
    mine.iter().filter(|&&mine| mine).count()
}

/// Every point is in exactly one shard, however many shards there are and whatever is known of costs; and no shard has
/// more to do than the mean and the most expensive point. Method: random costs of some points, some of them in real
/// time.
#[test]
fn every_point_is_in_one_shard() {
    let folder = tempfile::tempdir().unwrap();
    let plan = Plan::new(&experiment(folder.path(), 60), "test").unwrap();
    let points = plan.points.len();
    assert_eq!(points, 120);
    for seed in 0..40 {
        let mut rng = Rng::new(seed);
        let mut costs = Costs::default();
        for point in 0..points {
            if rng.chance(seed, 40) {
                let seconds = rng.below(1000) as f64 / 10.0;
                costs.add(Spent { place: plan.name_of(point), seconds }).unwrap();
            }
        }
        let shards = 1 + rng.below(130) as usize;
        let real = rng.chance(1, 2).then(|| rng.below(points as u64) as usize);
        let is_simulated = |point| Some(point) != real;
        let cost = costs.of(&plan);
        let most = cost.iter().copied().fold(0.0, f64::max);
        let mean = cost.iter().sum::<f64>() / shards as f64;
        let mut times = vec![0; points];
        for shard in 1..=shards {
            let shard: Shard = format!("{shard}/{shards}").parse().unwrap();
            let mine = shard.points(&plan, &costs, is_simulated);
            assert_eq!(mine, shard.points(&plan, &costs.clone(), is_simulated), "the same in every process");
            let load: f64 = cost.iter().zip(&mine).filter(|&(_, &mine)| mine).map(|(cost, _)| cost).sum();
            assert!(load <= mean + most + 1e-6, "seed {seed}: shard {shard} has {load} of {mean} s");
            mine.iter().zip(&mut times).for_each(|(&mine, times)| *times += u32::from(mine));
        }
        assert!(times.iter().all(|&times| times == 1), "seed {seed}: {times:?}");
        if let Some(real) = real {
            let first: Shard = format!("1/{shards}").parse().unwrap();
            assert!(first.points(&plan, &costs, is_simulated)[real], "seed {seed}: real time belongs to the first");
        }
    }
    for wrong in ["", "1", "0/3", "4/3", "-1/3", "1/0", "1/100001", "1/2/3", "a/b", "18446744073709551616/3"] {
        wrong.parse::<Shard>().unwrap_err();
    }
}

/// Costs are those of the point, else of its contestant, else of all.
#[test]
fn costs_are_guessed_from_what_is_alike() {
    let folder = tempfile::tempdir().unwrap();
    let plan = Plan::new(&experiment(folder.path(), 3), "test").unwrap();
    let of = |known: &[(&str, f64)]| {
        let mut costs = Costs::default();
        for (place, seconds) in known {
            costs.add(Spent { place: (*place).to_owned(), seconds: *seconds }).unwrap();
        }
        let places = (0..plan.points.len()).map(|point| plan.name_of(point));
        places.zip(costs.of(&plan)).collect::<std::collections::BTreeMap<String, f64>>()
    };
    assert!(of(&[]).values().all(|&cost| cost == 1.0));
    let costs = of(&[("one, n 1", 10.0), ("one, n 99", 30.0)]);
    assert_eq!((costs["one, n 1"], costs["one, n 2"], costs["other, n 1"]), (10.0, 20.0, 20.0));
    let mut costs = Costs::default();
    for seconds in [f64::NAN, f64::INFINITY, -1.0] {
        costs.add(Spent { place: "one, n 1".to_owned(), seconds }).unwrap_err();
    }
}

/// What shards have measured is put together in any order, twice, with shards that overlap and one that a kill left in
/// the middle of a line; what is missing stays missing, and what differs is an error.
#[test]
fn shards_are_merged() {
    let folder = tempfile::tempdir().unwrap();
    let experiment = experiment(folder.path(), 5);
    let plan = Plan::new(&experiment, "test").unwrap();
    let path = |name: &str| folder.path().join(name);
    let store = |name: &str, points: &[usize]| {
        let mut results = Results::open(&path(name), &plan, &patiently).unwrap();
        for &point in points {
            results.add(&plan.points[point], measure(point as f64), &patiently).unwrap();
            results.add_seconds(plan.name_of(point), 1.5, &patiently).unwrap();
        }
    };
    store("a", &[0, 3, 4]);
    store("b", &[1, 3, 5, 6]);
    store("c", &[2, 7]);
    let journal = path("b/points.jsonl");
    let whole = std::fs::read(&journal).unwrap();
    std::fs::write(&journal, &whole[..whole.len() - 3]).unwrap();
    let always = |_: &Point| true;
    let mut seen = Vec::new();
    for order in [["a", "b", "c"], ["c", "b", "a"]] {
        let out = format!("out-{}", order[0]);
        let mut results = Results::open(&path(&out), &plan, &patiently).unwrap();
        let added: usize =
            order.iter().map(|from| results.merge(&path(from), &plan, always, &patiently).unwrap().added).sum();
        assert_eq!(added, 7, "three is there twice, six is torn");
        let rows = results.finish(&experiment, &plan, &serde_json::json!({}), &patiently).unwrap();
        drop(results);
        // Again, and into the same folder: nothing is added.
        let mut results = Results::open(&path(&out), &plan, &patiently).unwrap();
        for from in order {
            assert_eq!(results.merge(&path(from), &plan, always, &patiently).unwrap().added, 0, "{from}");
        }
        seen.push((rows, read_costs(&path(&out)).unwrap().of(&plan)));
    }
    assert_eq!(seen[0], seen[1], "whatever the order");
    assert_eq!(seen[0].0.len(), 7);

    let mut results = Results::open(&path("other"), &plan, &patiently).unwrap();
    let other = Plan::new(&experiment, "another program").unwrap();
    let merged = results.merge(&path("a"), &other, always, &patiently).unwrap();
    let foreign = Foreign { of_builds: 3, builds: ["test".to_owned()].into(), of_experiments: 0 };
    assert_eq!(merged, Merged { added: 0, known: 0, foreign: foreign.clone() });
    assert_eq!(foreign.to_string(), "3 points of another build of seekless (test)");
    let folders = ["a", "b"].map(path);
    let (there, others) = Results::count(&folders, &plan).unwrap();
    assert_eq!(
        (there.len(), others.iter().map(Foreign::count).sum::<usize>()),
        (5, 0),
        "three is there twice, six is torn"
    );
    assert_eq!(Results::count(&folders, &other).unwrap().1[0], foreign);
    results.merge(&path("nowhere"), &plan, always, &patiently).unwrap_err();
    results.add(&plan.points[0], measure(77.0), &patiently).unwrap();
    let error = results.merge(&path("a"), &plan, always, &patiently).unwrap_err().to_string();
    assert!(error.contains("points.jsonl") && error.contains("virtual time is the same every time"), "{error}");
    assert_eq!(results.rounds(&plan.points[3]), 0, "nothing is added from a folder that is wrong");
    // Real time differs from round to round: these are further rounds, each once.
    assert_eq!(results.merge(&path("a"), &plan, |_| false, &patiently).unwrap().added, 3);
    assert_eq!(results.merge(&path("a"), &plan, |_| false, &patiently).unwrap().added, 0);
    assert_eq!(results.rounds(&plan.points[0]), 2);

    let mine = "2/3".parse::<Shard>().unwrap().points(&plan, &read_costs(&path("a")).unwrap(), |_| true);
    assert!((3..=4).contains(&count(&mine)), "{}", count(&mine));
    // A run that was ended while it wrote, or found no space, does not keep others from going on: in its folder, or in another
    // one that it is merged into.
    let times = std::fs::read(path("a/seconds.jsonl")).unwrap();
    std::fs::write(path("a/seconds.jsonl"), &times[..times.len() - 7]).unwrap();
    let mut results = Results::open(&path("torn"), &plan, &patiently).unwrap();
    for from in ["a", "b"] {
        results.merge(&path(from), &plan, always, &patiently).unwrap();
        read_costs(&path("torn")).unwrap();
    }
    drop(results);
    let mut results = Results::open(&path("a"), &plan, &patiently).unwrap();
    for _ in 0..2 {
        results.add_seconds(plan.name_of(0), 2.5, &patiently).unwrap();
        read_costs(&path("a")).unwrap();
    }
    drop(results);
    std::fs::write(path("a/seconds.jsonl"), "{\"place\":\"one, n 1\",\"seconds\":-1}\n").unwrap();
    read_costs(&path("a")).unwrap_err();
}
